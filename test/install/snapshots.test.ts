import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { SnapshotRow } from '../../src/install/installed.ts'
import { chooseRetained, existingSnapshots, nextSnapshotName } from '../../src/install/snapshots.ts'
import { prepareTemporaryHost, rowOf } from './prepared-host.ts'

function snapshot(name: string, isOurs = true): SnapshotRow {
  const { snapshots: _, contract, kind, slug, id, ...version } = rowOf()
  return { ...version, name, artifact_sha256: isOurs ? version.artifact_sha256 : null }
}

describe('nextSnapshotName', () => {
  const cases = [
    [[], '1.0.0', '1-1.0.0'],
    [['1-0.9', '2-1.0'], '1.1', '3-1.1'],
    [['9-0.9', '10-1.0'], '1.1', '11-1.1'],
    [['2-1.0'], '1.0', '3-1.0'],
    [['notes', 'x-1'], null, '1-unknown'],
    [[], '../../evil', '1-unknown'],
    [[], 'a b', '1-unknown'],
  ] as const
  for (const [present, version, name] of cases) {
    it(`calls ${version} after [${present.join(', ')}] ${name}`, async t => {
      const layout = await prepareTemporaryHost(t)
      for (const folder of present) mkdirSync(join(layout.snapshots, 'plugins/x', folder), { recursive: true })
      assert.equal(await nextSnapshotName(layout, 'plugins', 'x', version), name)
    })
  }
})

describe('chooseRetained', () => {
  const rows = ['1', '2', '3', '4'].map(name => snapshot(name))
  const limits = [
    [0, ['4']],
    [1, ['4']],
    [2, ['3', '4']],
    [4, ['1', '2', '3', '4']],
    [1000, ['1', '2', '3', '4']],
  ] as const
  for (const [limit, kept] of limits) {
    it(`keeps the newest with a limit of ${limit}, the last good one always`, () => {
      const { keep, discard } = chooseRetained(rows, limit)
      assert.deepEqual(
        keep.map(row => row.name),
        kept,
      )
      assert.equal(discard.length, rows.length - kept.length)
    })
  }

  it('keeps for ever what we did not install ourselves', () => {
    const { keep } = chooseRetained([snapshot('1', false), snapshot('2'), snapshot('3')], 1)
    assert.deepEqual(
      keep.map(row => row.name),
      ['1', '3'],
    )
  })

  it('has nothing to choose from nothing', () => assert.deepEqual(chooseRetained([], 3), { keep: [], discard: [] }))
})

describe('existingSnapshots', () => {
  it('leaves out what an operator has removed', async t => {
    const layout = await prepareTemporaryHost(t)
    mkdirSync(join(layout.snapshots, 'plugins/x/2-1.0'), { recursive: true })
    const rows = [snapshot('1-0.9'), snapshot('2-1.0')]
    assert.deepEqual(await existingSnapshots(layout, 'plugins', 'x', rows), rows.slice(1))
  })
})
