import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { acquireLock, type LockRequest, removeDeadMarks } from '../../../src/install/host/lock.ts'
import { readOwnIdentity } from '../../../src/install/host/process-identity.ts'
import { createSteppedClock } from '../stepped-clock.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

const CONTENDER = join(import.meta.dirname, 'lock-contender.ts')
const HOLDER_ID = '0b3a8a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
const OTHER_ID = '1c4a8a52-7a0a-4d4b-9d53-6f6a3f6d1b22'

function requestIn(folder: string, more: Partial<LockRequest> = {}): LockRequest {
  return { path: join(folder, 'lock'), timeoutMs: 0, runUrl: 'https://ci.example/runs/1', log: () => {}, ...more }
}

function holder(more: Record<string, unknown> = {}): string {
  const own = readOwnIdentity()
  return JSON.stringify({ id: HOLDER_ID, ...own, run_url: 'https://ci.example/runs/7', since: 'yesterday', ...more })
}

function endedPid(): number {
  return spawnSync(process.execPath, ['-e', '']).pid
}

function locked(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'locked'
}

describe('acquireLock', () => {
  it('writes who holds it, and leaves nothing behind when it is released', async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder))
    const written = JSON.parse(readFileSync(join(folder, 'lock'), 'utf8'))
    assert.equal(written.pid, process.pid)
    assert.equal(written.run_url, 'https://ci.example/runs/1')
    assert.ok(Number.isFinite(Date.parse(written.since)))
    assert.equal(statSync(join(folder, 'lock')).mode & 0o777, 0o600)
    assert.deepEqual(readdirSync(folder), ['lock'])
    lock.release()
    assert.deepEqual(readdirSync(folder), [])
    lock.release()
  })

  const abandoned: Record<string, () => string> = {
    'a pid that no longer exists': () => holder({ pid: endedPid() }),
    'a pid that a later process has': () => holder({ start_time: '1' }),
    'another boot of this host': () => holder({ boot_id: 'another', pid: 1 }),
    'another boot and another pid namespace': () => holder({ boot_id: 'another', pid_namespace: 'pid:[1]' }),
    'an empty file': () => '',
    garbage: () => 'held by me',
    'nothing but the name of this host': () => JSON.stringify({ hostname: hostname() }),
    'a hostname that is not text': () => '{"hostname":7}',
    'half a record': () => holder().slice(0, 40),
    'a record without a pid': () => holder({ pid: undefined }),
    'a process group as its pid': () => holder({ pid: -1 }),
    'an id that would leave the folder': () => holder({ id: '../../../../../etc/passwd-aaaaaaaaaaa' }),
  }
  for (const [name, content] of Object.entries(abandoned)) {
    it(`takes over at once from ${name}`, async t => {
      const folder = temporaryDirectory(t)
      writeFileSync(join(folder, 'lock'), content())
      const lock = await acquireLock(requestIn(folder))
      assert.equal(JSON.parse(readFileSync(join(folder, 'lock'), 'utf8')).pid, process.pid)
      lock.release()
      assert.deepEqual(readdirSync(folder), [])
    })
  }

  const alive: Record<string, () => string> = {
    'a live process': () => holder(),
    'a live process of another user': () => holder({ pid: 1, start_time: null }),
    'another host': () => holder({ hostname: 'elsewhere', pid: endedPid() }),
    'another host that was booted at another time': () => holder({ hostname: 'elsewhere', boot_id: 'another' }),
    'another host and another version of this action': () =>
      holder({ hostname: 'elsewhere', id: 7, boot_id: undefined, start_time: undefined, since: undefined }),
    'another pid namespace': () => holder({ pid_namespace: 'pid:[1]', pid: endedPid() }),
    'a host without pid namespaces': () => holder({ pid_namespace: null, pid: endedPid() }),
  }
  for (const [name, content] of Object.entries(alive)) {
    it(`leaves the lock of ${name} alone and names it`, async t => {
      const folder = temporaryDirectory(t)
      const text = content()
      writeFileSync(join(folder, 'lock'), text)
      await assert.rejects(acquireLock(requestIn(folder)), error => {
        assert.ok(locked(error))
        const { pid, hostname } = JSON.parse(text)
        const { message } = error as Error
        for (const part of [`process ${pid}`, hostname, 'https://ci.example/runs/7']) assert.ok(message.includes(part))
        return true
      })
      assert.equal(readFileSync(join(folder, 'lock'), 'utf8'), text)
      assert.deepEqual(readdirSync(folder), ['lock'])
    })
  }

  it('leaves a lock alone that only names another host', async t => {
    const folder = temporaryDirectory(t)
    writeFileSync(join(folder, 'lock'), '{"hostname":"elsewhere"}')
    await assert.rejects(acquireLock(requestIn(folder)), error => locked(error) && String(error).includes('elsewhere'))
    assert.equal(readFileSync(join(folder, 'lock'), 'utf8'), '{"hostname":"elsewhere"}')
  })

  it('leaves a dead lock to the live process that is taking it over', async t => {
    const folder = temporaryDirectory(t)
    const dead = holder({ pid: endedPid() })
    writeFileSync(join(folder, 'lock'), dead)
    writeFileSync(join(folder, `lock.takeover-${HOLDER_ID}`), holder({ id: OTHER_ID }))
    await assert.rejects(acquireLock(requestIn(folder)), locked)
    assert.equal(readFileSync(join(folder, 'lock'), 'utf8'), dead)
    assert.deepEqual(readdirSync(folder), ['lock', `lock.takeover-${HOLDER_ID}`])
  })

  it('takes over a dead lock from a take-over that died too', async t => {
    const folder = temporaryDirectory(t)
    const pid = endedPid()
    writeFileSync(join(folder, 'lock'), holder({ pid }))
    writeFileSync(join(folder, `lock.takeover-${HOLDER_ID}`), holder({ pid, id: OTHER_ID }))
    const lock = await acquireLock(requestIn(folder))
    lock.release()
    assert.deepEqual(readdirSync(folder), [])
  })

  it('cleans what a holder wrote before it reports it', async t => {
    const folder = temporaryDirectory(t)
    writeFileSync(join(folder, 'lock'), holder({ run_url: 'x\n::error::y', hostname: 'elsewhere\r##[error]' }))
    await assert.rejects(acquireLock(requestIn(folder)), error => {
      assert.doesNotMatch((error as Error).message, /::|##\[|[\r\n]/)
      return true
    })
  })

  it('reports who holds the lock while it waits, and goes on when it is free', async t => {
    const folder = temporaryDirectory(t)
    const first = await acquireLock(requestIn(folder))
    const lines: string[] = []
    const log = (line: string): void => {
      lines.push(line)
      first.release()
    }
    const second = await acquireLock(requestIn(folder, { timeoutMs: 60_000, log }), createSteppedClock())
    second.release()
    assert.equal(lines.length, 1)
    assert.ok(lines[0]?.includes(`process ${process.pid}`))
  })

  it("stops waiting with the signal's reason", async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder))
    const controller = new AbortController()
    const reason = new DeploymentError('cancelled', 'stop')
    const request = { timeoutMs: 60_000, signal: controller.signal, log: () => controller.abort(reason) }
    await assert.rejects(acquireLock(requestIn(folder, request)), error => error === reason)
    lock.release()
    assert.deepEqual(readdirSync(folder), [])
  })

  it('does not remove the lock of a process that took it over', async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder))
    const text = holder()
    writeFileSync(join(folder, 'lock'), text)
    lock.release()
    assert.equal(readFileSync(join(folder, 'lock'), 'utf8'), text)
  })

  it('reports the holder every 10 s, and gives up at the time-out', async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder))
    const clock = createSteppedClock()
    const reportedAt: number[] = []
    const request = requestIn(folder, { timeoutMs: 25_100, log: () => reportedAt.push(clock.now()) })
    await assert.rejects(acquireLock(request, clock), locked)
    assert.deepEqual([reportedAt, clock.now()], [[0, 10_000, 20_000], 25_100])
    lock.release()
  })

  it('reports what is wrong with the folder', async t => {
    const folder = join(temporaryDirectory(t), 'gone')
    await assert.rejects(acquireLock(requestIn(folder)), DeploymentError)
  })
})

describe('removeDeadMarks', () => {
  const temporaryOf = (pid: number): string => `lock.${pid}.${OTHER_ID}.tmp`
  const GONE = 2 ** 31 - 1
  const files: Record<string, { name: string; content: () => string; stays: boolean }> = {
    'the mark of a dead take-over': {
      name: `lock.takeover-${HOLDER_ID}`,
      content: () => holder({ pid: endedPid() }),
      stays: false,
    },
    'the mark of a live take-over': { name: `lock.takeover-${HOLDER_ID}`, content: () => holder(), stays: true },
    'the file of a waiter that died': { name: temporaryOf(GONE), content: () => holder({ pid: GONE }), stays: false },
    'the file of a live waiter': { name: temporaryOf(process.pid), content: () => holder(), stays: true },
    'the file of a waiter on another host': {
      name: temporaryOf(GONE),
      content: () => holder({ pid: GONE, hostname: 'elsewhere' }),
      stays: true,
    },
    'the file of a waiter in another pid namespace': {
      name: temporaryOf(GONE),
      content: () => holder({ pid: GONE, pid_namespace: 'pid:[1]' }),
      stays: true,
    },
    'the half-written file of a dead process': { name: temporaryOf(GONE), content: () => '', stays: false },
    'the file that a live process is just writing': {
      name: temporaryOf(process.pid),
      content: () => '',
      stays: true,
    },
    'the lock itself': { name: 'lock', content: () => holder({ pid: GONE }), stays: true },
    'an unrelated file': { name: 'locksmith', content: () => '', stays: true },
  }
  for (const [what, { name, content, stays }] of Object.entries(files)) {
    it(`${stays ? 'leaves' : 'removes'} ${what}`, async t => {
      const folder = temporaryDirectory(t)
      writeFileSync(join(folder, name), content())
      removeDeadMarks(join(folder, 'lock'))
      assert.equal(existsSync(join(folder, name)), stays)
    })
  }
})

describe('a lock that 8 processes want at once', { concurrency: false }, () => {
  const scenes: Record<string, { content: (() => string) | undefined; dying: number }> = {
    'nobody holds': { content: undefined, dying: 0 },
    'a dead process holds': { content: () => holder({ pid: endedPid() }), dying: 0 },
    'is garbage': { content: () => '', dying: 0 },
    'some of them die with': { content: () => holder({ pid: endedPid() }), dying: 3 },
  }
  for (const [name, { content, dying }] of Object.entries(scenes)) {
    it(`and ${name} is never held twice, and leaves nothing behind`, { timeout: 300_000 }, async t => {
      const folder = temporaryDirectory(t)
      if (content !== undefined) writeFileSync(join(folder, 'lock'), content())
      const ends = await Promise.all(Array.from({ length: 8 }, (_, index) => contend(t, folder, index < dying)))
      assert.deepEqual(ends.toSorted(), [...Array(8 - dying).fill('exit 0'), ...Array(dying).fill('signal SIGKILL')])
      assert.ok(!existsSync(join(folder, 'marker')))
      const last = await acquireLock(requestIn(folder, { timeoutMs: 10_000 }))
      last.release()
      assert.deepEqual(readdirSync(folder), [])
    })
  }
})

/** How a contender ended: two holders at once make one of them fail on the marker. */
function contend(t: TestContext, folder: string, dies: boolean): Promise<string> {
  const args = [CONTENDER, join(folder, 'lock'), join(folder, 'marker'), ...(dies ? ['die'] : [])]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  child.stderr.on('data', text => t.diagnostic(String(text)))
  return new Promise(resolve =>
    child.once('exit', (code, signal) => resolve(signal === null ? `exit ${code}` : `signal ${signal}`)),
  )
}
