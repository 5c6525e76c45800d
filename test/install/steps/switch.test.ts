import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { installPath, type Layout, type Place } from '../../../src/install/host/layout.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import type { InstalledPart, NewPart } from '../../../src/install/steps/context.ts'
import { prepareParts, switchParts } from '../../../src/install/steps/switch.ts'
import type { Transaction } from '../../../src/install/transaction/transaction.ts'
import { readDriftNote } from '../../../src/install/trees/drift.ts'
import { readTreeRecord } from '../../../src/install/trees/record.ts'
import { timesMoveOn } from '../../clocks.ts'
import { listTree, writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf, previousOf } from '../prepared-deployment.ts'
import { type CollectedLog, collectLog, prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { recordTreeAt, treeOf, writeTreeOf } from '../trees/recorded-tree.ts'

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }

/** What differs from installing `plugins/x` over version 1.0.0 while keeping `.env` and `data`. */
interface Setting {
  keepPaths?: readonly string[]
  signal?: AbortSignal
  part?: Partial<NewPart>
}

interface Scene {
  layout: Layout
  log: CollectedLog
  transaction: Transaction
  staged: string
  listing(): Record<string, string>
  /** Installs the part. Resolves to the name of the snapshot of the replaced tree, if there is one. */
  install(setting?: Setting): Promise<string | undefined>
}

async function makeScene(
  t: TestContext,
  installed: Record<string, string> | undefined,
  shipped: Record<string, string>,
): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const context = await contextOf(t, deploymentOf(layout, { tools: { log } }))
  const part = partOf(layout, { previous: previousOf({ version: '1.0.0' }) })
  mkdirSync(part.staged)
  writeTree(part.staged, shipped)
  if (installed !== undefined) writeTree(installPath(layout, PLACE), installed)
  return {
    layout,
    log,
    transaction: context.transaction,
    staged: part.staged,
    listing: () => withoutModes(listTree(join(layout.root, 'plugins'))),
    async install({ keepPaths = ['.env', 'data'], signal, part: more } = {}) {
      const tools = signal === undefined ? { log } : { log, signal }
      const deployment = deploymentOf(layout, { request: { keepPaths }, tools })
      const staged = { ...part, ...more }
      const prepared = await prepareParts({ ...context, deployment }, { parts: [staged], next: new Set([staged]) })
      const results = await switchParts({ ...context, deployment }, { removed: [], prepared })
      assert.equal(results.get(staged)?.status, 'done')
      return context.results.get('plugins/x')?.snapshot
    },
  }
}

/** Returns a listing without the modes of the files, and without directories. */
function withoutModes(listing: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(listing).flatMap(([path, what]) =>
      what.endsWith(' directory') ? [] : [[path, what.replace(/^\d+ /, '')]],
    ),
  )
}

function stepFailed(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'step_failed'
}

describe('preparing and switching a part', () => {
  it('installs into an empty place, and rolls back to an empty place', async t => {
    const scene = await makeScene(t, undefined, { main: 'new' })
    assert.equal(await scene.install(), undefined)
    assert.deepEqual(scene.listing(), { 'x/main': 'new' })
    assert.equal(await scene.transaction.undo(), true)
    assert.deepEqual(
      Object.keys(listTree(scene.layout.root)).filter(path => path.startsWith('plugins')),
      [],
    )
  })

  it('moves the whole replaced tree to a snapshot, under the next number and its version', async t => {
    const scene = await makeScene(t, { main: 'old', 'lib/a': '1' }, { main: 'new' })
    assert.equal(await scene.install(), '1-1.0.0')
    assert.deepEqual(scene.listing(), { 'x/main': 'new' })
    assert.deepEqual(withoutModes(listTree(join(scene.layout.snapshots, 'plugins/x/1-1.0.0'))), {
      main: 'old',
      'lib/a': '1',
    })
  })

  it('keeps a directory of unknown origin as a snapshot named unknown', async t => {
    const scene = await makeScene(t, { mine: 'old' }, { main: 'new' })
    assert.equal(await scene.install({ part: { previous: previousOf() } }), '1-unknown')
    assert.deepEqual(withoutModes(listTree(join(scene.layout.snapshots, 'plugins/x/1-unknown'))), { mine: 'old' })
  })

  const kept = {
    'a file and a directory': { installed: { '.env': 'A=1', 'data/db': 'rows' }, keepPaths: ['.env', 'data'] },
    'a nested path, with the parents it needs': { installed: { 'var/lib/db': 'rows' }, keepPaths: ['var/lib'] },
    'a path inside another': { installed: { 'data/db': 'rows', 'data/x': '1' }, keepPaths: ['data', 'data/db'] },
    'a path inside another, which is named first': { installed: { 'data/db': 'rows' }, keepPaths: ['data/db', 'data'] },
    'a path that is named twice': { installed: { 'data/db': 'rows' }, keepPaths: ['data', 'data'] },
    'names that only begin alike': {
      installed: { 'data/db': 'rows', 'data2/db': 'more' },
      keepPaths: ['data', 'data2'],
    },
  }
  for (const [name, { installed, keepPaths }] of Object.entries(kept)) {
    it(`carries over ${name}, and moves it back on a rollback`, async t => {
      const scene = await makeScene(t, { main: 'old', ...installed }, { main: 'new' })
      const before = scene.listing()
      await scene.install({ keepPaths })
      const carried = Object.entries(installed).map(([path, text]) => [`x/${path}`, text])
      assert.deepEqual(scene.listing(), { 'x/main': 'new', ...Object.fromEntries(carried) })
      await scene.transaction.undo()
      assert.deepEqual(scene.listing(), before)
    })
  }

  it("keeps the host's own file if the artifact contains the same path, and says so", async t => {
    const scene = await makeScene(
      t,
      { 'data/db': 'rows' },
      { main: 'new', 'data/db': 'empty', 'data/seed': 'x', '.env': 'A=' },
    )
    await scene.install()
    assert.deepEqual(scene.listing(), { 'x/main': 'new', 'x/data/db': 'rows', 'x/.env': 'A=' })
    assert.equal(scene.log.lines.filter(line => line.startsWith('notice')).length, 1)
  })

  it('carries a symlink over without following it', async t => {
    const scene = await makeScene(t, { main: 'old' }, { main: 'new' })
    symlinkSync('/var/lib/x', join(scene.layout.root, 'plugins/x/data'))
    await scene.install()
    assert.deepEqual(scene.listing(), { 'x/main': 'new', 'x/data': '-> /var/lib/x' })
  })

  const left = { 'left/main': 'older', 'left/data/db': 'rows', 'left/other': '1' }

  it('carries kept paths that an earlier version left behind into an empty place, and moves them back on a rollback', async t => {
    const scene = await makeScene(t, undefined, { main: 'new', 'data/seed': 'x' })
    writeTree(scene.layout.root, left)
    const leftBehind = join(scene.layout.root, 'left')
    assert.equal(await scene.install({ part: { leftBehind } }), undefined)
    assert.deepEqual(scene.listing(), { 'x/main': 'new', 'x/data/db': 'rows' })
    assert.deepEqual(withoutModes(listTree(leftBehind)), { main: 'older', other: '1' })
    await scene.transaction.undo()
    assert.deepEqual(withoutModes(listTree(leftBehind)), { main: 'older', 'data/db': 'rows', other: '1' })
  })

  it('leaves those kept paths alone if the place is not empty', async t => {
    const scene = await makeScene(t, { main: 'old', '.env': 'A=1' }, { main: 'new' })
    writeTree(scene.layout.root, left)
    await scene.install({ part: { leftBehind: join(scene.layout.root, 'left') } })
    assert.deepEqual(scene.listing(), { 'x/main': 'new', 'x/.env': 'A=1' })
    assert.equal(withoutModes(listTree(join(scene.layout.root, 'left')))['data/db'], 'rows')
  })

  it('refuses a kept path behind a symlink on the host, before anything is changed', async t => {
    const scene = await makeScene(t, { main: 'old', 'real/lib/db': 'rows' }, { main: 'new' })
    symlinkSync('real', join(scene.layout.root, 'plugins/x/var'))
    const before = scene.listing()
    await assert.rejects(scene.install({ keepPaths: ['var/lib'] }), stepFailed)
    assert.deepEqual(scene.listing(), before)
    assert.equal(scene.transaction.changed, false)
  })

  it('refuses a kept path whose parent is a symlink or a file in the artifact', async t => {
    for (const make of [(path: string) => symlinkSync('/tmp', path), (path: string) => writeFileSync(path, '')]) {
      const scene = await makeScene(t, { 'var/lib/db': 'rows' }, { main: 'new' })
      make(join(scene.staged, 'var'))
      await assert.rejects(scene.install({ keepPaths: ['var/lib'] }), stepFailed)
      assert.equal(scene.transaction.changed, false)
    }
  })

  it('refuses to carry anything out of a place that is a symlink itself', async t => {
    const scene = await makeScene(t, undefined, { main: 'new' })
    writeTree(scene.layout.root, { 'releases/1/data/db': 'rows' })
    mkdirSync(join(scene.layout.root, 'plugins'))
    symlinkSync('../releases/1', join(scene.layout.root, 'plugins/x'))
    await assert.rejects(scene.install(), stepFailed)
    assert.deepEqual(scene.listing(), { x: '-> ../releases/1' })
  })

  it('changes nothing once the run is cancelled', async t => {
    const scene = await makeScene(t, { main: 'old' }, { main: 'new' })
    const reason = new Error('cancelled')
    await assert.rejects(scene.install({ signal: AbortSignal.abort(reason) }), error => error === reason)
    assert.equal(scene.transaction.changed, false)
  })
})

describe('an installed tree that another process changes between its comparison and its move', () => {
  const IDS = ['x', 'y']
  const FILES = { main: 'old', 'lib/a': '1' }
  const DIGEST = hash('sha256', '2')
  /** After this time, a comparison is no longer current. */
  const JUST_NOW_MS = 1000

  /** Two installed parts, each with its record, and their new versions. */
  async function makeInstalled(t: TestContext, { msPerCall = JUST_NOW_MS, snapshot = true } = {}) {
    const layout = await prepareTemporaryHost(t)
    let now = 0
    const clockMs = (): number => {
      now += msPerCall
      return now
    }
    const context = await contextOf(t, deploymentOf(layout, { clockMs }), { snapshot })
    const [parts, rows] = [[] as NewPart[], [] as InstalledRow[]]
    for (const id of IDS) {
      const place = { ...PLACE, id }
      const root = installPath(layout, place)
      writeTreeOf(root, FILES)
      const installed = rowOf({ id, ...(await recordTreeAt(layout, root, treeOf(FILES))) })
      const staged = join(context.stagingFolder, id)
      mkdirSync(staged)
      writeTree(staged, { main: 'new' })
      rows.push(installed)
      parts.push(partOf(layout, { ...place, staged, previous: previousOf({ installed, version: '1.0.0' }) }))
    }
    await recordInstalled(layout, { rows, removed: [] })
    await timesMoveOn(context.stagingFolder)
    const prepared = await prepareParts(context, { parts, next: new Set(parts) })
    return { layout, context, prepared }
  }

  /**
   * Switches the parts, and changes the first part's tree at the `nth` call of `reach` if the tree is still in its
   * place. `isChanged` says whether the tree was changed.
   */
  async function switchMeanwhile(t: TestContext, nth: number, more: { msPerCall?: number; snapshot?: boolean } = {}) {
    const scene = await makeInstalled(t, more)
    const changed = join(scene.layout.root, 'plugins/x/lib/a')
    let [calls, isChanged] = [0, false]
    const results = await switchParts(scene.context, { removed: [], prepared: scene.prepared }, () => {
      calls += 1
      isChanged ||= calls === nth && existsSync(changed)
      if (isChanged && calls === nth) writeFileSync(changed, '2')
    })
    return { ...scene, isChanged, results }
  }

  it('becomes a modified snapshot, and is in the report and in the note for a rollback, whenever it changes', async t => {
    let nth = 2
    for (; ; nth++) {
      const { layout, context, isChanged } = await switchMeanwhile(t, nth)
      if (!isChanged) break
      const { snapshot, modified } = context.results.get('plugins/x') ?? {}
      assert.ok(modified !== undefined && snapshot !== undefined, `the change at call ${nth} was not noticed`)
      const record = [...(readTreeRecord(layout, modified) ?? [])]
      assert.equal(record.find(({ path }) => path === 'lib/a')?.sha256, DIGEST)
      const { drift } = context.deployment.record.facts
      assert.deepEqual(
        drift?.map(({ id, changed }) => [id, changed]),
        [['x', ['lib/a']]],
      )
      const note = readDriftNote(context.stagingFolder, { ...PLACE })
      assert.deepEqual([note?.modified, [...(note?.states.keys() ?? [])]], [true, ['lib/a']])
      assert.equal(context.results.get('plugins/y')?.modified, undefined)
    }
    // Two parts are compared, planned and identified; then the first one is moved.
    assert.ok(nth > 6, `the tree was in its place at only ${nth - 2} calls`)
  })

  it('is not compared again right after its comparison', async t => {
    const { context, isChanged } = await switchMeanwhile(t, 4, { msPerCall: 1 })
    assert.ok(isChanged)
    assert.equal(context.results.get('plugins/x')?.modified, undefined)
  })

  it('is compared again at once if the plan keeps no snapshot, so that no change is lost', async t => {
    const { context, isChanged } = await switchMeanwhile(t, 4, { msPerCall: 1, snapshot: false })
    assert.ok(isChanged)
    assert.ok(context.results.get('plugins/x')?.modified !== undefined)
  })

  it('belongs to the part that is named when it cannot be identified', async t => {
    const { layout, context, prepared } = await makeInstalled(t, { msPerCall: 1 })
    const reached: string[] = []
    const switching = switchParts(context, { removed: [], prepared }, ({ id }) => {
      reached.push(id)
      // The first tree is in its place, and the second one follows.
      if (id === 'y' && !existsSync(join(context.stagingFolder, 'x'))) writeFileSync(layout.installed, 'damaged')
    })
    await assert.rejects(switching, { code: 'inconsistent' })
    assert.equal(reached.at(-1), 'x')
    assert.ok(existsSync(join(layout.root, 'plugins/y/main')))
  })

  it('becomes a genuine snapshot if it does not change', async t => {
    const { context, isChanged, results } = await switchMeanwhile(t, 0)
    assert.equal(isChanged, false)
    assert.deepEqual(
      [...results.values()].map(({ did }) => did),
      ['2 files removed', '2 files removed'],
    )
    assert.equal(context.results.get('plugins/x')?.modified, undefined)
    assert.equal(context.deployment.record.facts.drift, undefined)
  })
})

describe('the removal of a part', () => {
  for (const [version, said] of [
    ['1.0.0', '1.0.0 removed'],
    [null, 'removed'],
  ] as const) {
    it(`says "${said}" of a part whose recorded version is ${version}`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeTree(layout.root, { 'plugins/x/a': '' })
      const installed = rowOf({ id: 'x', version })
      const part: InstalledPart = { shelf: 'plugins', id: 'x', directory: 'plugins', installed }
      const context = await contextOf(t, deploymentOf(layout), { removals: [part] })
      const results = await switchParts(context, { removed: [part], prepared: [] })
      assert.deepEqual(results.get(part), { status: 'done', did: said, story: `plugins/x ${said}` })
    })
  }

  it('names the part that cannot be removed, before anything is changed', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTree(layout.root, { 'plugins/x/a': '', 'plugins/y/real/lib': '' })
    symlinkSync('real', join(layout.root, 'plugins/y/var'))
    const removed = ['x', 'y'].map(id => ({ ...PLACE, id, installed: rowOf({ id }) }))
    const deployment = deploymentOf(layout, { request: { keepPaths: ['var/lib'] } })
    const context = await contextOf(t, deployment, { removals: removed })
    const reached: string[] = []
    await assert.rejects(
      switchParts(context, { removed, prepared: [] }, ({ id }) => reached.push(id)),
      stepFailed,
    )
    assert.equal(reached.at(-1), 'y')
    assert.equal(context.transaction.changed, false)
  })
})
