import assert from 'node:assert/strict'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { Layout } from '../../../src/install/host/layout.ts'
import { buildTreeRecord } from '../../../src/install/host/tree-record.ts'
import { installTree, type TreeInstallation } from '../../../src/install/steps/install-tree.ts'
import { openJournal } from '../../../src/install/transaction/journal.ts'
import { beginTransaction, type Transaction } from '../../../src/install/transaction/transaction.ts'
import { listTree } from '../archive/directory-listing.ts'
import { type CollectedLog, collectLog } from '../collected-log.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

interface Scene {
  layout: Layout
  log: CollectedLog
  transaction: Transaction
  staged: string
  listing(): Record<string, string>
  install(more?: Partial<TreeInstallation>): Promise<string | undefined>
}

async function makeScene(
  t: TestContext,
  installed: Record<string, string> | undefined,
  shipped: Record<string, string>,
): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const journal = await openJournal(layout.journal)
  t.after(() => journal.close())
  const transaction = beginTransaction(layout.root, journal, log)
  const staged = join(layout.staging, 'one', 'tree')
  mkdirSync(staged, { recursive: true })
  writeTree(staged, shipped)
  if (installed !== undefined) writeTree(join(layout.root, 'plugins/x'), installed)
  const installation = {
    layout,
    transaction,
    log,
    shelf: 'plugins',
    id: 'x',
    staged,
    record: buildTreeRecord({ files: [], symlinks: [] }, []),
    previousVersion: '1.0.0',
  } as const
  const signal = new AbortController().signal
  return {
    layout,
    log,
    transaction,
    staged,
    listing: () => withoutModes(listTree(join(layout.root, 'plugins'))),
    install: more => installTree({ ...installation, keepPaths: ['.env', 'data'], signal, ...more }),
  }
}

/** Files by their content; directories left out. */
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

describe('installTree', () => {
  it('installs where nothing was, and takes back to nothing', async t => {
    const scene = await makeScene(t, undefined, { main: 'new' })
    assert.equal(await scene.install(), undefined)
    assert.deepEqual(scene.listing(), { 'x/main': 'new' })
    assert.equal(await scene.transaction.rollback(), true)
    assert.deepEqual(
      Object.keys(listTree(scene.layout.root)).filter(path => path.startsWith('plugins')),
      [],
    )
  })

  it('puts the replaced tree aside whole, under the next number and its version', async t => {
    const scene = await makeScene(t, { main: 'old', 'lib/a': '1' }, { main: 'new' })
    assert.equal(await scene.install(), '1-1.0.0')
    assert.deepEqual(scene.listing(), { 'x/main': 'new' })
    assert.deepEqual(withoutModes(listTree(join(scene.layout.snapshots, 'plugins/x/1-1.0.0'))), {
      main: 'old',
      'lib/a': '1',
    })
  })

  it('keeps a directory of unknown origin as unknown', async t => {
    const scene = await makeScene(t, { mine: 'old' }, { main: 'new' })
    assert.equal(await scene.install({ previousVersion: null }), '1-unknown')
    assert.deepEqual(withoutModes(listTree(join(scene.layout.snapshots, 'plugins/x/1-unknown'))), { mine: 'old' })
  })

  const kept = {
    'a file and a directory': { installed: { '.env': 'A=1', 'data/db': 'rows' }, keepPaths: ['.env', 'data'] },
    'a nested path, with the parents it needs': { installed: { 'var/lib/db': 'rows' }, keepPaths: ['var/lib'] },
    'one inside another': { installed: { 'data/db': 'rows', 'data/x': '1' }, keepPaths: ['data', 'data/db'] },
    'one inside another, named first': { installed: { 'data/db': 'rows' }, keepPaths: ['data/db', 'data'] },
    'one named twice': { installed: { 'data/db': 'rows' }, keepPaths: ['data', 'data'] },
    'names that only begin alike': {
      installed: { 'data/db': 'rows', 'data2/db': 'more' },
      keepPaths: ['data', 'data2'],
    },
  }
  for (const [name, { installed, keepPaths }] of Object.entries(kept)) {
    it(`carries over ${name}, and back`, async t => {
      const scene = await makeScene(t, { main: 'old', ...installed }, { main: 'new' })
      const before = scene.listing()
      await scene.install({ keepPaths })
      const carried = Object.entries(installed).map(([path, text]) => [`x/${path}`, text])
      assert.deepEqual(scene.listing(), { 'x/main': 'new', ...Object.fromEntries(carried) })
      await scene.transaction.rollback()
      assert.deepEqual(scene.listing(), before)
    })
  }

  it("keeps the host's own where the artifact ships the same name, and says so", async t => {
    const scene = await makeScene(
      t,
      { 'data/db': 'rows' },
      { main: 'new', 'data/db': 'empty', 'data/seed': 'x', '.env': 'A=' },
    )
    await scene.install()
    assert.deepEqual(scene.listing(), { 'x/main': 'new', 'x/data/db': 'rows', 'x/.env': 'A=' })
    assert.equal(scene.log.lines.filter(line => line.startsWith('notice')).length, 1)
  })

  it('carries a symlink over as what it is', async t => {
    const scene = await makeScene(t, { main: 'old' }, { main: 'new' })
    symlinkSync('/var/lib/x', join(scene.layout.root, 'plugins/x/data'))
    await scene.install()
    assert.deepEqual(scene.listing(), { 'x/main': 'new', 'x/data': '-> /var/lib/x' })
  })

  const left = { 'left/main': 'older', 'left/data/db': 'rows', 'left/other': '1' }

  it('carries over what was left behind where nothing is in the place, and back', async t => {
    const scene = await makeScene(t, undefined, { main: 'new', 'data/seed': 'x' })
    writeTree(scene.layout.root, left)
    const leftBehind = join(scene.layout.root, 'left')
    assert.equal(await scene.install({ leftBehind }), undefined)
    assert.deepEqual(scene.listing(), { 'x/main': 'new', 'x/data/db': 'rows' })
    assert.deepEqual(withoutModes(listTree(leftBehind)), { main: 'older', other: '1' })
    await scene.transaction.rollback()
    assert.deepEqual(withoutModes(listTree(leftBehind)), { main: 'older', 'data/db': 'rows', other: '1' })
  })

  it('leaves what was left behind alone where something is in the place', async t => {
    const scene = await makeScene(t, { main: 'old', '.env': 'A=1' }, { main: 'new' })
    writeTree(scene.layout.root, left)
    await scene.install({ leftBehind: join(scene.layout.root, 'left') })
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

  it('refuses a kept path whose parent the artifact ships as a symlink or a file', async t => {
    for (const make of [(path: string) => symlinkSync('/tmp', path), (path: string) => writeFileSync(path, '')]) {
      const scene = await makeScene(t, { 'var/lib/db': 'rows' }, { main: 'new' })
      make(join(scene.staged, 'var'))
      await assert.rejects(scene.install({ keepPaths: ['var/lib'] }), stepFailed)
      assert.equal(scene.transaction.changed, false)
    }
  })

  it('refuses to carry anything out of a place that is itself a symlink', async t => {
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
