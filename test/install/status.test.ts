import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, rmSync, utimesSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { toDeployError } from '../../src/core/errors.ts'
import { applyChanges } from '../../src/install/changes/change.ts'
import type { Layout, Place } from '../../src/install/host/layout.ts'
import { recordInstalled } from '../../src/install/host/record.ts'
import { type Inspection, inspectHost, isDrifted } from '../../src/install/status.ts'
import { writeTree } from '../folders.ts'
import { holdElsewhere, rewriteHolder } from './host/held-elsewhere.ts'
import { collectLog, factsOf, prepareTemporaryHost, removedRowOf, rowOf, snapshotOf } from './prepared-host.ts'
import { announced, begun, makeScene, SNAPSHOT, STAGING, UPDATE, undone } from './recovery/recovery-scene.ts'
import { installRecorded } from './trees/recorded-tree.ts'

const FIRST = [{ type: 'move', from: `${STAGING}/tree`, to: 'plugins/new' }] as const
const NEVER = new AbortController().signal

async function inspect(layout: Layout, signal = NEVER): Promise<Inspection> {
  return await inspectHost({ layout, sharedRoot: { isAllowed: false }, keepPaths: [] }, { log: collectLog(), signal })
}

/** Returns the id, the version and the drift of each part. */
function findings({ parts }: Inspection): string[] {
  return parts.map(({ id, row, drift }) => `${id} ${row.version}: ${drift?.kind ?? 'as installed'}`)
}

describe('inspectHost', () => {
  it('finds no drift in a part that is as it was installed', async t => {
    const layout = await prepareTemporaryHost(t)
    await installRecorded(layout, { 'main.py': 'x' })
    const inspection = await inspect(layout)
    assert.deepEqual([findings(inspection), isDrifted(inspection)], [['greeter 2.0.0: as installed'], false])
    assert.equal(inspection.activity.kind, 'quiet')
  })

  for (const [path, mode, isDrift] of [
    ['.', 0o777, true],
    ['src/deep', 0o775, true],
    ['src/deep', 0o757, true],
    ['src/deep', 0o700, false],
    ['data', 0o777, false],
    ['src/__pycache__', 0o775, false],
    ['src/__pycache__', 0o777, true],
  ] as const)
    it(`${isDrift ? 'names' : 'does not name'} ${path} of mode ${mode.toString(8)} as a path that others can write`, async t => {
      const layout = await prepareTemporaryHost(t)
      const { root, ...tree } = await installRecorded(layout, { 'src/deep/main.py': 'x' })
      for (const made of ['data', 'src/__pycache__']) mkdirSync(join(root, made))
      for (const made of ['.', 'src', 'src/deep', 'src/__pycache__']) chmodSync(join(root, made), 0o755)
      chmodSync(join(root, path), mode)
      const row = rowOf({ ...tree, keep_paths: ['data'] })
      await recordInstalled(layout, { rows: [row], removed: [] })
      const { parts } = await inspect(layout)
      const paths = [{ path, how: 'writable' }]
      assert.deepEqual(parts[0]?.drift, isDrift ? { kind: 'differs', paths, count: 1 } : undefined)
    })

  it('finds unrecorded plugins, even if the record is gone', async t => {
    const layout = await prepareTemporaryHost(t)
    await installRecorded(layout, { 'main.py': 'x' })
    writeTree(layout.root, { 'plugins/by-hand/main.py': '', 'plugins/greeter.env': '' })
    assert.deepEqual((await inspect(layout)).unrecorded, ['plugins/by-hand'])
    rmSync(layout.installed)
    assert.deepEqual((await inspect(layout)).unrecorded, ['plugins/by-hand', 'plugins/greeter'])
  })

  it('ends at once with the reason of a cancel', async t => {
    const layout = await prepareTemporaryHost(t)
    await installRecorded(layout, { 'main.py': 'x' })
    const reason = new Error('cancelled')
    await assert.rejects(inspect(layout, AbortSignal.abort(reason)), reason)
  })

  it('treats what a dead run committed as installed, even if the record does not contain it yet', async t => {
    const scene = await makeScene(t)
    const snapshots = [snapshotOf('1-1.0.0', { version: '1.0.0' })]
    const commit = {
      record: 'commit' as const,
      at: '2026-01-02T03:04:06.000Z',
      rows: [rowOf({ snapshots })],
      removed: [],
      discard: [],
    }
    writeTree(scene.layout.root, { [`${SNAPSHOT}/main.py`]: 'old' })
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE), commit])
    const inspection = await inspect(scene.layout)
    const { activity } = inspection
    assert.ok(activity.kind === 'interrupted' && /after its commit/.test(activity.sentence))
    assert.deepEqual(findings(inspection), ['greeter 2.0.0: not compared'])
    assert.deepEqual(
      inspection.snapshots.map(({ row }) => row.name),
      ['1-1.0.0'],
    )
    // The dead run is not the reason: the part has no record of its files.
    assert.equal(isDrifted(inspection), true)
  })

  it('lists the snapshots of a part that a dead run has removed, and those of a returned part only once', async t => {
    const scene = await makeScene(t)
    const { layout } = scene
    const origin = { contract: 'project', slug: 'shop' } as const
    const snapshots = [snapshotOf('1-1.0.0')]
    await recordInstalled(layout, {
      rows: [rowOf({ ...origin, snapshots: [] })],
      removed: [removedRowOf({ ...origin, id: 'other', snapshots })],
    })
    const commit = {
      record: 'commit' as const,
      at: '2026-01-02T03:04:06.000Z',
      rows: [rowOf({ ...origin, id: 'other', snapshots })],
      removed: [removedRowOf({ ...origin, snapshots })],
      discard: [],
    }
    writeTree(join(layout.snapshots, 'plugins'), { 'greeter/1-1.0.0/main.py': '', 'other/1-1.0.0/main.py': '' })
    const facts = factsOf({ ...origin, kind: null, id: null })
    scene.writeJournal([...begun(scene.sender, [], facts), commit])
    const { parts, snapshots: found } = await inspect(layout)
    const idsOf = (places: readonly Place[]): string[] => places.map(({ id }) => id)
    assert.deepEqual([idsOf(parts), idsOf(found)], [['other'], ['other', 'greeter']])
  })

  for (const [name, records] of [
    ['announced nothing', []],
    ['announced a change that it did not make', announced(UPDATE)],
    ['undone everything', [...announced(UPDATE), ...undone([...UPDATE].reverse())]],
  ] as const)
    it(`compares the part of a dead run that has ${name}`, async t => {
      const scene = await makeScene(t)
      scene.writeJournal([...begun(scene.sender), ...records])
      const inspection = await inspect(scene.layout)
      const { activity } = inspection
      assert.ok(activity.kind === 'interrupted' && activity.inDoubt.size === 0)
      assert.equal(isDrifted(inspection), false)
    })

  for (const [name, facts, subject] of [
    ['a deployment', factsOf(), 'The deployment of greeter 2.0.0'],
    ['a deployment of an unknown version', factsOf({ version: null }), 'The deployment of greeter'],
    ['a deployment of an unknown name', factsOf({ slug: null, id: null }), 'The deployment'],
    ['a rollback', factsOf({ rollback_of: '3.0.0' }), 'The rollback of greeter to 2.0.0'],
  ] as const)
    it(`names ${name} that was interrupted`, async t => {
      const scene = await makeScene(t)
      scene.writeJournal(begun(scene.sender, [], facts))
      const { activity } = await inspect(scene.layout)
      assert.ok(activity.kind === 'interrupted')
      assert.match(activity.sentence, new RegExp(`^${subject} was interrupted`))
    })

  it('does not call a host unchanged if a first install was killed on it', async t => {
    const scene = await makeScene(t)
    await applyChanges(scene.layout.root, FIRST)
    scene.writeJournal([...begun(scene.sender), ...announced(FIRST)])
    const inspection = await inspect(scene.layout)
    assert.deepEqual([findings(inspection), isDrifted(inspection)], [[], undefined])
  })

  it('applies the commit of a dead run to the record, whether or not the run has written that record', async t => {
    const scene = await makeScene(t)
    const { layout } = scene
    await recordInstalled(layout, { rows: [rowOf({ version: '1.0.0' }), rowOf({ id: 'other' })], removed: [] })
    const commit = { rows: [rowOf()], removed: [], discard: [] }
    const at = '2026-01-02T03:04:06.000Z'
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE), { record: 'commit', at, ...commit }])
    const installed = async () => (await inspect(layout)).parts.map(({ row }) => `${row.id} ${row.version}`)
    assert.deepEqual(await installed(), ['greeter 2.0.0', 'other 2.0.0'])
    await recordInstalled(layout, commit)
    assert.deepEqual(await installed(), ['greeter 2.0.0', 'other 2.0.0'])
  })

  const journalOf = async (t: TestContext): Promise<Layout> => {
    const scene = await makeScene(t)
    scene.writeJournal([...begun(scene.sender), ...announced(UPDATE)])
    return scene.layout
  }

  it('calls a host busy while a live process has its lock, and interrupted once that process is dead', async t => {
    const layout = await journalOf(t)
    const holder = await holdElsewhere(t, layout.lock)
    const inspection = await inspect(layout)
    const { activity } = inspection
    assert.ok(activity.kind === 'busy' && activity.holder.includes(hostname()), JSON.stringify(activity))
    assert.equal(isDrifted(inspection), undefined)
    await holder.kill()
    assert.equal((await inspect(layout)).activity.kind, 'interrupted')
  })

  for (const [name, changes, expected] of [
    ['in another pid namespace, whose kernel lock is gone', { pid_namespace: 'pid:[1]' }, 'interrupted'],
    [
      'on another host',
      { hostname: 'elsewhere', boot_id: 'other', machine_id: 'f'.repeat(32), kernel_lock: null },
      'busy',
    ],
  ] as const)
    it(`calls a host ${expected} if its lock names a process ${name}`, async t => {
      const layout = await journalOf(t)
      const holder = await holdElsewhere(t, layout.lock)
      await holder.kill()
      rewriteHolder(layout.lock, changes)
      assert.equal((await inspect(layout)).activity.kind, expected)
    })

  for (const [what, records] of [
    ['has not begun its journal', undefined],
    ['has not announced a change', []],
    ['has announced a change', announced(UPDATE)],
  ] as const)
    it(`calls a host ${records?.length ? 'busy' : 'quiet'} while a run has the lock and ${what}`, async t => {
      const { layout, sender, writeJournal } = await makeScene(t)
      if (records !== undefined) writeJournal([...begun(sender), ...records])
      await holdElsewhere(t, layout.lock)
      assert.equal((await inspect(layout)).activity.kind, records?.length ? 'busy' : 'quiet')
    })

  for (const [times, kind, lines] of [
    [1, 'quiet', 1],
    [9, 'busy', 2],
  ] as const)
    it(`calls a host ${kind} if its record changes ${times === 1 ? 'once' : `${times} times`} while it is examined`, async t => {
      const layout = await prepareTemporaryHost(t)
      await installRecorded(layout, { 'main.py': 'x' })
      let left: number = times
      const keepPaths: readonly string[] = Object.assign([], {
        // The kept paths are read in the middle of a comparison, so the record changes at that moment.
        [Symbol.iterator]() {
          if (left-- > 0) utimesSync(layout.installed, left, left)
          return new Set<string>().values()
        },
      })
      const log = collectLog()
      const inspection = await inspectHost(
        { layout, sharedRoot: { isAllowed: false }, keepPaths },
        { log, signal: NEVER },
      )
      assert.deepEqual([inspection.activity.kind, log.lines.length], [kind, lines])
      assert.equal(isDrifted(inspection), kind === 'quiet' ? false : undefined)
    })

  it('refuses a missing root', async t => {
    const { root, ...layout } = await prepareTemporaryHost(t)
    const missing = { ...layout, root: `${root}/missing` }
    await assert.rejects(inspect(missing), error => toDeployError(error).code === 'invalid_input')
  })
})
