import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { type KernelLock, readFreeKernelLock, tryKernelLock } from '../../../src/install/host/kernel-lock.ts'
import { missingTools } from '../../extent.ts'
import { isOpen, temporaryDirectory } from '../../folders.ts'

const timeoutMs = 60_000
const skip = missingTools('flock')

function newPath(t: TestContext): string {
  return join(temporaryDirectory(t), 'kernel-lock')
}

async function take(path: string): Promise<KernelLock> {
  const lock = await tryKernelLock({ path: path, timeoutMs })
  assert.ok(typeof lock === 'object', String(lock))
  return lock
}

describe('tryKernelLock', { skip }, () => {
  it('excludes others until it is released, even within one process', async t => {
    const path = newPath(t)
    const lock = await take(path)
    assert.equal(await tryKernelLock({ path: path, timeoutMs }), 'busy')
    lock.release()
    const next = await take(path)
    lock.release()
    assert.equal(await tryKernelLock({ path: path, timeoutMs }), 'busy')
    next.release()
    assert.deepEqual(readdirSync(dirname(path)), ['kernel-lock'])
  })

  it('is not inherited by child processes', async t => {
    const path = newPath(t)
    const lock = await take(path)
    const daemon = spawn('sleep', ['600'], { stdio: 'ignore', detached: true })
    t.after(() => daemon.kill('SIGKILL'))
    await once(daemon, 'spawn')
    lock.release()
    const next = await take(path)
    next.release()
  })

  it('counts a lock on a file that was replaced as neither held nor free', async t => {
    const path = newPath(t)
    writeFileSync(path, '')
    const folder = temporaryDirectory(t)
    // This stand-in for `flock` moves the file away just before the file is locked.
    writeFileSync(join(folder, 'flock'), `#!/bin/sh\nmv "${path}" "${path}.old" && exec ${which('flock')} "$@"\n`, {
      mode: 0o755,
    })
    usePath(t, `${folder}:${process.env['PATH']}`)
    assert.equal(await tryKernelLock({ path: path, timeoutMs }), 'busy')
    renameSync(`${path}.old`, path)
    assert.equal(await readFreeKernelLock({ path, timeoutMs }), undefined)
  })

  const answers: Record<string, { script: string; timeoutMs: number }> = {
    'cannot lock': { script: 'exit 71', timeoutMs },
    'never answers': { script: 'exec sleep 3600', timeoutMs: 1 },
    'is killed': { script: 'kill -9 $$', timeoutMs },
  }
  for (const [what, { script, timeoutMs }] of Object.entries(answers)) {
    it(`is unavailable if flock ${what}`, async t => {
      const folder = temporaryDirectory(t)
      writeFileSync(join(folder, 'flock'), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
      usePath(t, `${folder}:${process.env['PATH']}`)
      assert.equal(await tryKernelLock({ path: newPath(t), timeoutMs }), 'unavailable')
    })
  }

  it('keeps the file open only while it holds the lock', async t => {
    const path = newPath(t)
    const lock = await take(path)
    assert.equal(isOpen(path), true)
    lock.release()
    assert.equal(isOpen(path), false)
    const other = spawn('flock', [path, 'sh', '-c', 'echo locked; exec sleep 600'], { detached: true })
    t.after(() => process.kill(-(other.pid as number), 'SIGKILL'))
    await once(other.stdout, 'data')
    assert.equal(await tryKernelLock({ path, timeoutMs }), 'busy')
    assert.equal(isOpen(path), false)
  })

  it('is unavailable if there is no flock', async t => {
    usePath(t, '/nonexistent')
    assert.equal(await tryKernelLock({ path: newPath(t), timeoutMs }), 'unavailable')
  })
})

describe('readFreeKernelLock', { skip }, () => {
  it('finds out whether a lock is free, and closes the file', async t => {
    const path = newPath(t)
    writeFileSync(path, '')
    assert.equal(await readFreeKernelLock({ path, timeoutMs }), String(statSync(path).ino))
    assert.equal(isOpen(path), false)
    const lock = await take(path)
    assert.equal(await readFreeKernelLock({ path, timeoutMs }), undefined)
    lock.release()
    assert.equal(isOpen(path), false)
  })

  it('creates no missing file', async t => {
    const path = newPath(t)
    assert.equal(await readFreeKernelLock({ path, timeoutMs }), undefined)
    assert.deepEqual(readdirSync(dirname(path)), [])
  })

  it('ends with the reason of a cancel while flock has not answered, and closes the file', async t => {
    const path = newPath(t)
    writeFileSync(path, '')
    const folder = temporaryDirectory(t)
    const asked = join(folder, 'asked')
    writeFileSync(join(folder, 'flock'), `#!/bin/sh\n: > ${asked}\nexec sleep 600\n`, { mode: 0o755 })
    usePath(t, `${folder}:${process.env['PATH']}`)
    const [reason, cancel] = [new Error('cancelled'), new AbortController()]
    const free = readFreeKernelLock({ path, timeoutMs, signal: cancel.signal })
    while (!existsSync(asked)) await setTimeout(1)
    cancel.abort(reason)
    await assert.rejects(free, error => error === reason)
    assert.equal(isOpen(path), false)
  })
})

describe('tryKernelLock refuses', () => {
  const others: Record<string, (path: string) => void> = {
    'a dangling symlink, and creates nothing': path => symlinkSync(join(dirname(path), 'elsewhere'), path),
    'a symlink to a file': path => {
      writeFileSync(`${path}.real`, '')
      symlinkSync(`${path}.real`, path)
    },
    'a directory': path => mkdirSync(path),
    'a pipe, without waiting for its other end': path => void spawnSync('mkfifo', [path]),
  }
  for (const [what, make] of Object.entries(others)) {
    it(what, async t => {
      const path = newPath(t)
      make(path)
      const before = readdirSync(dirname(path))
      await assert.rejects(tryKernelLock({ path: path, timeoutMs }), { code: 'unsafe_host' })
      assert.deepEqual(readdirSync(dirname(path)), before)
    })
  }
})

function which(program: string): string {
  return spawnSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' }).stdout.trim()
}

function usePath(t: TestContext, path: string): void {
  const before = process.env['PATH']
  process.env['PATH'] = path
  t.after(() => {
    process.env['PATH'] = before
  })
}
