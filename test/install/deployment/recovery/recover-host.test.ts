import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { holdLock } from '../../../../src/install/deployment/recovery/hold-lock.ts'
import { recoverBeforeRefusal, recoverHost } from '../../../../src/install/deployment/recovery/recover-host.ts'
import { renameProbePath } from '../../../../src/install/host/layout.ts'
import { UntouchableHostError } from '../../../../src/install/host/ownership/untouchable-host.ts'
import { applyChanges } from '../../../../src/install/transaction/changes/change.ts'
import { buildEnd } from '../../../../src/install/transaction/end.ts'
import { announced, assertReported, assertSettled, begun, makeScene, type Scene, UPDATE } from './recovery-scene.ts'

const REFUSED = buildEnd(new Date(), {
  outcome: 'failed',
  error: { code: 'invalid_input', message: 'version is not a version.', step: null },
})

async function interruptUpdate({ layout, sender, writeJournal }: Scene): Promise<void> {
  for (const change of UPDATE) await applyChanges(layout.root, [change])
  writeJournal([...begun(sender), ...announced(UPDATE)])
}

describe('recoverHost', () => {
  it('does not wait for the lock when there is nothing to recover', async t => {
    const scene = await makeScene(t)
    const held = await holdLock(scene.host, 0)
    assert.equal(await recoverHost(scene.host), undefined)
    held.release()
  })

  it('rolls back the changes of a dead run, and releases the lock', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    await interruptUpdate(scene)
    const closed = await recoverHost(scene.host)
    assert.equal(closed?.report.outcome, 'rolled_back')
    assert.deepEqual(scene.plugins(), before)
    assertSettled(scene)
    assert.ok(!existsSync(scene.layout.lock))
  })

  it('releases the lock when the recovery fails', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    await assert.rejects(recoverHost(scene.host), { code: 'inconsistent' })
    assert.ok(!existsSync(scene.layout.lock))
  })
})

describe('recoverBeforeRefusal', () => {
  it('recovers the host and does not change how the run ends', async t => {
    const scene = await makeScene(t)
    const before = scene.plugins()
    await interruptUpdate(scene)
    assert.equal(await recoverBeforeRefusal(scene.host, REFUSED), REFUSED)
    assert.deepEqual(scene.plugins(), before)
    assertReported(scene, { outcome: 'rolled_back' })
  })

  it('ends the run as inconsistent when the host cannot be recovered, and gives both reasons', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.layout.journal, '{\n')
    const known = await recoverBeforeRefusal(scene.host, REFUSED)
    assert.ok(!(known instanceof Error))
    const { outcome, error, ...end } = known
    assert.deepEqual([outcome, error?.code], ['inconsistent', 'invalid_input'])
    assert.ok(error?.message.startsWith('version is not a version. Also: '), error?.message)
    assert.ok(error?.message.includes(scene.layout.journal), error?.message)
    const { outcome: _, error: __, ...expected } = REFUSED
    assert.deepEqual(end, expected)
  })

  it('ends the run as inconsistent while a directory is stranded where renames must fail, even with nothing to recover', async t => {
    const scene = await makeScene(t)
    assert.equal(await recoverBeforeRefusal(scene.host, REFUSED), REFUSED)
    mkdirSync(join(renameProbePath(scene.layout), 'lib'), { recursive: true })
    const known = await recoverBeforeRefusal(scene.host, REFUSED)
    assert.ok(!(known instanceof Error))
    assert.deepEqual([known.outcome, known.error?.code], ['inconsistent', 'invalid_input'])
    assert.match(known.error?.message ?? '', /^version is not a version\. Also: .* contains lib\. /)
  })

  it('does not obey a journal that another user may have written since the host was checked', async t => {
    const scene = await makeScene(t)
    await interruptUpdate(scene)
    const journal = readFileSync(scene.layout.journal)
    chmodSync(scene.layout.own, 0o770)
    const known = await recoverBeforeRefusal(scene.host, REFUSED)
    assert.ok(known instanceof UntouchableHostError)
    assert.equal(known.code, 'unsafe_host')
    assert.deepEqual(readFileSync(scene.layout.journal), journal)
  })
})
