import assert from 'node:assert/strict'
import { existsSync, readdirSync, renameSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it } from 'node:test'
import { treeRecordPath } from '../../../src/install/host/layout.ts'
import { readHostRecord, recordInstalled } from '../../../src/install/host/record.ts'
import { cleanStaging, finishCommitted, retryDiscarded } from '../../../src/install/recovery/cleanup.ts'
import { writeTree } from '../../folders.ts'
import { collectLog, prepareTemporaryHost, rowOf } from '../prepared-host.ts'

const SNAPSHOT = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'

describe('a discarded snapshot', () => {
  it('is removed even if its id and version have the longest allowed length', async t => {
    const layout = await prepareTemporaryHost(t)
    const path = `.hub-deploy/snapshots/plugins/${'i'.repeat(128)}/1-${'v'.repeat(128)}`
    writeTree(layout.root, { [`${path}/main.py`]: 'old' })
    const log = collectLog()
    assert.ok(await finishCommitted({ layout, log }, { rows: [rowOf()], removed: [], discard: [path] }))
    await cleanStaging(layout, log)
    assert.ok(!existsSync(join(layout.root, path)))
    assert.deepEqual([readdirSync(layout.staging), readdirSync(layout.trash).length, log.lines], [[], 1, []])
  })

  it('that is gone already, with its folder, counts as removed', async t => {
    const layout = await prepareTemporaryHost(t)
    const log = collectLog()
    assert.ok(await finishCommitted({ layout, log }, { rows: [rowOf()], removed: [], discard: [SNAPSHOT] }))
    assert.deepEqual([readHostRecord(layout).discard, log.lines], [[], []])
  })

  it('that cannot be removed stays recorded, for as many runs as it takes', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTree(layout.root, { [`${SNAPSHOT}/main.py`]: 'old' })
    const folder = dirname(join(layout.root, SNAPSHOT))
    // A symlink to itself: nothing can be removed through this path, not even by root.
    renameSync(folder, `${folder}-real`)
    symlinkSync('greeter', folder)
    const log = collectLog()
    assert.ok(await finishCommitted({ layout, log }, { rows: [rowOf()], removed: [], discard: [SNAPSHOT] }))
    for (let run = 0; run < 3; run++) await retryDiscarded(layout, log)
    assert.deepEqual(readHostRecord(layout).discard, [SNAPSHOT])
    assert.deepEqual(readHostRecord(layout).installed, [rowOf()])
    const warnings = log.lines.filter(line => line.startsWith('warning'))
    assert.equal(warnings.length, 4)
    for (const warning of warnings) assert.match(warning, /later runs continue it: Failed while cleaning up: ELOOP/)
    unlinkSync(folder)
    renameSync(`${folder}-real`, folder)
    await retryDiscarded(layout, log)
    assert.ok(!existsSync(join(layout.root, SNAPSHOT)))
    assert.deepEqual(readHostRecord(layout).discard, [])
  })
})

describe('the cleanup of a host', () => {
  it('removes the tree records that nothing names, and no others', async t => {
    const layout = await prepareTemporaryHost(t)
    const [used, stale] = ['a'.repeat(64), 'b'.repeat(64)]
    for (const name of [used, stale]) writeFileSync(treeRecordPath(layout, name), '')
    await recordInstalled(layout, { rows: [rowOf({ tree_record: used })], removed: [] })
    const log = collectLog()
    await cleanStaging(layout, log)
    assert.deepEqual([readdirSync(layout.trees), log.lines], [[`${used}.tree`], []])
  })
})
