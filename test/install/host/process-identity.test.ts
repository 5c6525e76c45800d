import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { isProvablyDead, pidExists, readOwnIdentity } from '../../../src/install/host/process-identity.ts'

describe('isProvablyDead', () => {
  it('is false for this process, and if the known facts prove nothing', () => {
    const own = readOwnIdentity()
    const unknown = { start_time: null, boot_id: null, pid_namespace: own.pid_namespace }
    for (const holder of [own, { ...own, ...unknown }, { ...own, boot_id: null }]) {
      assert.equal(isProvablyDead(holder, own), false)
    }
  })

  it('is true once the process has ended', async () => {
    const own = readOwnIdentity()
    const child = spawn(process.execPath, ['-e', 'process.stdin.resume()'], { stdio: ['pipe', 'ignore', 'ignore'] })
    await once(child, 'spawn')
    const holder = { ...own, pid: child.pid as number, start_time: null }
    assert.equal(isProvablyDead(holder, own), false)
    child.kill('SIGKILL')
    await once(child, 'exit')
    assert.equal(isProvablyDead(holder, own), true)
  })
})

describe('pidExists', () => {
  it("is true for this process and another user's, and false for one that has ended", () => {
    assert.deepEqual([process.pid, 1, spawnSync('true').pid].map(pidExists), [true, true, false])
  })
})
