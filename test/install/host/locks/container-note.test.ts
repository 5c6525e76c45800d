import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { areContainersNoted, noteContainers } from '../../../../src/install/host/locks/container-note.ts'
import { tryKernelLock } from '../../../../src/install/host/locks/kernel-lock.ts'
import { acquireLock, isUsedInContainers } from '../../../../src/install/host/locks/lock.ts'
import { readOwnIdentity } from '../../../../src/install/host/locks/process-identity.ts'
import { missingTools } from '../../missing-tools.ts'
import { temporaryDirectory } from '../../temporary-directory.ts'

describe('noteContainers', () => {
  it('notes once that containers use a host, and leaves its lock usable', { skip: missingTools('flock') }, async t => {
    const path = join(temporaryDirectory(t), 'kernel-lock')
    writeFileSync(path, '')
    assert.equal(areContainersNoted(path), false)
    noteContainers(path)
    const text = readFileSync(path, 'utf8')
    noteContainers(path)
    assert.deepEqual([areContainersNoted(path), readFileSync(path, 'utf8')], [true, text])
    const lock = await tryKernelLock({ path, timeoutMs: 5000 })
    assert.ok(typeof lock === 'object')
    lock.release()
  })

  it('creates no lock if there is none', t => {
    const path = join(temporaryDirectory(t), 'kernel-lock')
    noteContainers(path)
    assert.deepEqual([existsSync(path), areContainersNoted(path)], [false, false])
  })
})

describe('acquireLock', () => {
  for (const [where, pid_namespace, isNoted] of [
    ['in a container', 'pid:[4026532201]', true],
    ['on the machine itself', 'pid:[4026531836]', false],
    ['whose place is unknown', null, false],
  ] as const)
    it(`${isNoted ? 'notes' : 'does not note'} that containers use the host for a process ${where}`, async t => {
      const path = join(temporaryDirectory(t), 'lock')
      const identity = { ...readOwnIdentity(), pid_namespace }
      const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {}, identity })
      lock.release()
      assert.equal(isUsedInContainers(path), isNoted)
    })
})
