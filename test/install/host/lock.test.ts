import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { acquireLock, describeOther, type LockRequest } from '../../../src/install/host/lock.ts'
import { readOwnIdentity } from '../../../src/install/host/process-identity.ts'
import { createSteppedClock } from '../../clocks.ts'
import { COMPILE_CACHE } from '../../compile-cache.ts'
import { HANG_LIMIT_MS, sampled } from '../../extent.ts'
import { temporaryDirectory } from '../../folders.ts'
import { failOpen } from '../failing-calls.ts'

const CONTENDER = join(import.meta.dirname, 'lock-contender.ts')
const HOLDER_ID = '0b3a8a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
const OTHER_ID = '1c4a8a52-7a0a-4d4b-9d53-6f6a3f6d1b22'

const NO_MACHINE = readOwnIdentity().machine_id === null && 'this machine has no machine id'

function requestIn(folder: string, more: Partial<LockRequest> = {}): LockRequest {
  return { path: join(folder, 'lock'), timeoutMs: 0, runUrl: 'https://ci.example/runs/1', log: () => {}, ...more }
}

function holder(more: Record<string, unknown> = {}): string {
  const own = readOwnIdentity()
  const run = { run_url: 'https://ci.example/runs/7', deployment: null, since: 'yesterday' }
  return JSON.stringify({ id: HOLDER_ID, ...own, kernel_lock: null, ...run, ...more })
}

function endedPid(): number {
  return spawnSync('true').pid
}

function locked(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'locked'
}

describe('acquireLock', () => {
  it('records which process has it, and leaves nothing behind when it is released', async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder, { deployment: 'greeter 2.0.0' }))
    const written = JSON.parse(readFileSync(join(folder, 'lock'), 'utf8'))
    assert.equal(written.pid, process.pid)
    assert.equal(written.run_url, 'https://ci.example/runs/1')
    assert.equal(written.deployment, 'greeter 2.0.0')
    assert.match(describeOther(join(folder, 'lock')), / to deploy greeter 2\.0\.0, https:\/\/ci\.example\/runs\/1$/)
    assert.ok(Number.isFinite(Date.parse(written.since)))
    assert.equal(statSync(join(folder, 'lock')).mode & 0o777, 0o600)
    assert.deepEqual(readdirSync(folder), ['kernel-lock', 'lock'])
    lock.release()
    assert.deepEqual(readdirSync(folder), ['kernel-lock'])
    lock.release()
  })

  for (const code of ['EIO', 'EMFILE', 'EACCES']) {
    it(`is released without an error and without a line about a wait if its file cannot be read (${code})`, async t => {
      const folder = temporaryDirectory(t)
      const waits: string[] = []
      const left: string[] = []
      const log = (line: string) => waits.push(line)
      const lock = await acquireLock(requestIn(folder, { log, onLeft: line => left.push(line) }))
      failOpen(t, join(folder, 'lock'), { code, times: 1 })
      lock.release()
      assert.deepEqual(waits, [])
      assert.equal(left.length, 1)
      assert.match(left[0] ?? '', new RegExp(`^The lock stays until the next run takes it over: .*${code}`))
      const next = await acquireLock(requestIn(folder))
      next.release()
      assert.deepEqual(readdirSync(folder), ['kernel-lock'])
    })

    it(`is described without an error if its file cannot be read (${code})`, async t => {
      const folder = temporaryDirectory(t)
      const lock = await acquireLock(requestIn(folder))
      failOpen(t, join(folder, 'lock'), { code, times: 1 })
      assert.match(describeOther(join(folder, 'lock')), /^a process that has not identified itself has the lock /)
      lock.release()
    })
  }

  it('throws the error of a failed take-over, not the one of the mark that it leaves', async t => {
    const folder = temporaryDirectory(t)
    const path = join(folder, 'lock')
    writeFileSync(path, holder({ pid: endedPid() }))
    failOpen(t, `${path}.takeover-${HOLDER_ID}`, { code: 'EIO' })
    await assert.rejects(acquireLock(requestIn(folder)), { code: 'step_failed', message: /EIO/ })
  })

  const abandoned: Record<string, () => string> = {
    'a pid that no longer exists': () => holder({ pid: endedPid() }),
    'a pid that a later process has': () => holder({ start_time: '1' }),
    'another boot of this host': () => holder({ boot_id: 'another', pid: 1 }),
    'another boot and another pid namespace': () => holder({ boot_id: 'another', pid_namespace: 'pid:[1]' }),
    'an empty file': () => '',
    garbage: () => 'held by me',
    'only the name of this host': () => JSON.stringify({ hostname: hostname() }),
    'a hostname that is not text': () => '{"hostname":7}',
    'half a record': () => holder().slice(0, 40),
    'a record without a pid': () => holder({ pid: undefined }),
    'a process group as its pid': () => holder({ pid: -1 }),
    'an id that would leave the folder': () => holder({ id: '../../../../../etc/passwd-aaaaaaaaaaa' }),
  }
  for (const [name, content] of Object.entries(abandoned)) {
    const skip = name.startsWith('another boot') && NO_MACHINE
    it(`takes over at once from ${name}`, { skip }, async t => {
      const folder = temporaryDirectory(t)
      writeFileSync(join(folder, 'lock'), content())
      const lock = await acquireLock(requestIn(folder))
      assert.equal(JSON.parse(readFileSync(join(folder, 'lock'), 'utf8')).pid, process.pid)
      lock.release()
      assert.deepEqual(readdirSync(folder), ['kernel-lock'])
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
      assert.deepEqual(readdirSync(folder), ['kernel-lock', 'lock'])
    })
  }

  it('advises to remove the lock of a process that is gone, unless a live process has the kernel lock', async t => {
    const [foreign, held] = [temporaryDirectory(t), temporaryDirectory(t)]
    const advice = / If that process is gone for good, remove \S+\/lock\.$/
    writeFileSync(join(foreign, 'lock'), holder({ hostname: 'elsewhere' }))
    await assert.rejects(acquireLock(requestIn(foreign)), { code: 'locked', message: advice })
    const lock = await acquireLock(requestIn(held))
    t.after(() => lock.release())
    await assert.rejects(acquireLock(requestIn(held)), { code: 'locked', message: /, or cancel it\.$/ })
  })

  it('leaves alone a lock that names only another host', async t => {
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
    assert.deepEqual(readdirSync(folder), ['kernel-lock', 'lock', `lock.takeover-${HOLDER_ID}`])
  })

  it('takes over a dead lock from a process that died while taking it over', async t => {
    const folder = temporaryDirectory(t)
    const pid = endedPid()
    writeFileSync(join(folder, 'lock'), holder({ pid }))
    writeFileSync(join(folder, `lock.takeover-${HOLDER_ID}`), holder({ pid, id: OTHER_ID }))
    const lock = await acquireLock(requestIn(folder))
    lock.release()
    assert.deepEqual(readdirSync(folder), ['kernel-lock'])
  })

  it("cleans a holder's text before reporting it", async t => {
    const folder = temporaryDirectory(t)
    const foreign = { run_url: 'x\n::error::y', hostname: 'elsewhere\r##[error]', deployment: 'x\n::warning::y' }
    writeFileSync(join(folder, 'lock'), holder(foreign))
    await assert.rejects(acquireLock(requestIn(folder)), error => {
      assert.doesNotMatch((error as Error).message, /[\r\n]/)
      return true
    })
  })

  it('reports which process has the lock while it waits, and takes the lock once it is free', async t => {
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
    assert.deepEqual(readdirSync(folder), ['kernel-lock'])
  })

  it('does not remove the lock of a process that took it over', async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder))
    const text = holder()
    writeFileSync(join(folder, 'lock'), text)
    lock.release()
    assert.equal(readFileSync(join(folder, 'lock'), 'utf8'), text)
  })

  it('reports the holder every 10 s, and gives up at the timeout', async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder))
    const clock = createSteppedClock()
    const reportedAt: number[] = []
    const request = requestIn(folder, { timeoutMs: 25_100, log: () => reportedAt.push(clock.now()) })
    await assert.rejects(acquireLock(request, clock), locked)
    assert.deepEqual([reportedAt, clock.now()], [[0, 10_000, 20_000], 25_100])
    lock.release()
  })

  for (const jumpMs of [3_600_000, -3_600_000]) {
    it(`waits for the full timeout if the clock is set by ${jumpMs / 3_600_000} h`, async t => {
      const folder = temporaryDirectory(t)
      const lock = await acquireLock(requestIn(folder))
      t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 })
      const clock = createSteppedClock()
      const request = requestIn(folder, { timeoutMs: 60_000, log: () => t.mock.timers.setTime(Date.now() + jumpMs) })
      await assert.rejects(acquireLock(request, clock), locked)
      assert.equal(clock.now(), 60_000)
      lock.release()
    })
  }

  const notFiles: Record<string, (path: string) => void> = {
    'a dangling symlink': path => symlinkSync(`${path}-elsewhere`, path),
    'a symlink to a lock': path => {
      writeFileSync(`${path}-elsewhere`, holder({ pid: endedPid() }))
      symlinkSync(`${path}-elsewhere`, path)
    },
    'a directory': path => mkdirSync(path),
    'a pipe': path => void spawnSync('mkfifo', [path]),
    'a file of 65 KiB': path => writeFileSync(path, 'x'.repeat(65 * 1024)),
  }
  for (const name of ['lock', 'kernel-lock', `lock.takeover-${HOLDER_ID}`]) {
    for (const [what, make] of Object.entries(notFiles)) {
      if (name === 'kernel-lock' && what.startsWith('a file')) continue
      it(`refuses ${what} as ${name} at once, names it, and touches nothing`, async t => {
        const folder = temporaryDirectory(t)
        if (name !== 'lock') writeFileSync(join(folder, 'lock'), holder({ pid: endedPid() }))
        make(join(folder, name))
        const before = listFolder(folder)
        await assert.rejects(acquireLock(requestIn(folder, { timeoutMs: 60_000 })), error => {
          assert.ok(error instanceof DeploymentError && error.code === 'unsafe_host', String(error))
          const expected = what.startsWith('a file') ? 'a regular file of at most 64 KiB' : 'a regular file'
          return error.message.includes(`${join(folder, name)} is not ${expected}`)
        })
        assert.deepEqual(listFolder(folder), before)
      })
    }
  }

  it('says how to find a process that has the lock but has not written its name', async t => {
    const folder = temporaryDirectory(t)
    const lock = await acquireLock(requestIn(folder))
    writeFileSync(join(folder, 'lock'), '')
    await assert.rejects(acquireLock(requestIn(folder)), error =>
      (error as Error).message.includes(`fuser ${join(folder, 'kernel-lock')}`),
    )
    lock.release()
  })

  it('reports a problem with the folder', async t => {
    const folder = join(temporaryDirectory(t), 'gone')
    await assert.rejects(acquireLock(requestIn(folder)), DeploymentError)
  })
})

describe('a lock that 8 processes want at once', { concurrency: false }, () => {
  const scenes: Record<string, { content: (() => string) | undefined; dying: number }> = {
    'that is free': { content: undefined, dying: 0 },
    'of a dead process': { content: () => holder({ pid: endedPid() }), dying: 0 },
    'that is garbage': { content: () => '', dying: 0 },
    'with which some of them are killed': { content: () => holder({ pid: endedPid() }), dying: 3 },
  }
  const tools: Record<string, (index: number) => boolean> = {
    'with flock': () => true,
    'without flock': () => false,
    'with flock for half of them': index => index % 2 === 0,
  }
  const rows = Object.entries(scenes).flatMap(scene => Object.entries(tools).map(tool => [scene, tool] as const))
  for (const [[which, { content, dying }], [how, hasFlock]] of sampled(rows, 2)) {
    it(`${which}, ${how}, is never held twice, and leaves nothing behind`, { timeout: HANG_LIMIT_MS }, async t => {
      const folder = temporaryDirectory(t)
      if (content !== undefined) writeFileSync(join(folder, 'lock'), content())
      const contenders = Array.from({ length: 8 }, (_, index) => ({ dies: index < dying, hasFlock: hasFlock(index) }))
      const ends = await Promise.all(contenders.map(contender => contend(t, folder, contender)))
      assert.deepEqual(ends.toSorted(), [...Array(8 - dying).fill('exit 0'), ...Array(dying).fill('signal SIGKILL')])
      assert.ok(!existsSync(join(folder, 'marker')))
      const last = await acquireLock(requestIn(folder, { timeoutMs: 10_000 }))
      last.release()
      assert.deepEqual(readdirSync(folder), ['kernel-lock'])
    })
  }
})

/**
 * Lists the name and the last change time of each file in a folder, except for `kernel-lock`, which every attempt
 * creates.
 */
function listFolder(folder: string): unknown[] {
  const names = readdirSync(folder).filter(name => name !== 'kernel-lock')
  return names.map(name => [name, lstatSync(join(folder, name), { bigint: true }).ctimeNs])
}

interface ContenderRequest {
  dies: boolean
  hasFlock: boolean
}

/**
 * Runs a contender, and resolves to how it ended. If two contenders have the lock at once, one of them fails on the
 * marker.
 */
function contend(t: TestContext, folder: string, { dies, hasFlock }: ContenderRequest): Promise<string> {
  const args = [CONTENDER, join(folder, 'lock'), join(folder, 'marker'), ...(dies ? ['die'] : [])]
  const env = { ...process.env, NODE_COMPILE_CACHE: COMPILE_CACHE, ...(hasFlock ? {} : { PATH: '/nonexistent' }) }
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  child.stderr.on('data', text => t.diagnostic(String(text)))
  return new Promise(resolve =>
    child.once('exit', (code, signal) => resolve(signal === null ? `exit ${code}` : `signal ${signal}`)),
  )
}
