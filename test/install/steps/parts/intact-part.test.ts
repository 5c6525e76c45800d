import assert from 'node:assert/strict'
import { renameSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { recordInstalled } from '../../../../src/install/host/installed/host-record.ts'
import type { InstalledRow } from '../../../../src/install/host/installed/rows.ts'
import { installPath, type Place } from '../../../../src/install/host/layout.ts'
import { keepPart } from '../../../../src/install/steps/keep-part.ts'
import { findIntactTree, keepIfIntact } from '../../../../src/install/steps/parts/intact-part.ts'
import type { PartTree } from '../../../../src/install/steps/parts/part.ts'
import { collectLog } from '../../collected-log.ts'
import { recordTreeAt, treeOf, writeTreeOf } from '../../host/trees/recorded-tree.ts'
import { contextOf, deploymentOf, partOf, previousOf } from '../../prepared-deployment.ts'
import { prepareTemporaryHost, rowOf } from '../../prepared-host.ts'
import { writeTree } from '../../temporary-directory.ts'

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }
const FILES = { main: 'same', 'lib/a': '1' }
const TREE = treeOf(FILES)
const OTHER_ARTIFACT = { artifact_sha256: 'cd'.repeat(32) }

/** The differences from a part whose new tree is installed and intact. */
interface Difference {
  /** Files to write into the installed tree. */
  files?: Record<string, string>
  row?: Partial<InstalledRow>
  tree?: PartTree
}

async function judge(t: TestContext, { files = {}, row: more = {}, tree = TREE }: Difference = {}) {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const context = await contextOf(t, deploymentOf(layout, { request: { keepPaths: ['data'] }, tools: { log } }))
  const path = installPath(layout, PLACE)
  writeTreeOf(path, FILES)
  const row = rowOf({ id: 'x', ...(await recordTreeAt(layout, path, TREE)), ...more })
  await recordInstalled(layout, { rows: [row], removed: [] })
  writeTree(path, files)
  const part = partOf(layout, { previous: previousOf(PLACE, { installed: row, version: row.version }), tree })
  return { context, log, row, part: await keepIfIntact(context.deployment, part, context.order.origin) }
}

describe('a part whose new tree is the installed one', () => {
  it('stays when it is intact, whatever other files are there', async t => {
    const { context, log, part, row } = await judge(t, { files: { 'data/db': 'rows', 'log/today': 'x' } })
    assert.ok(part.intact)
    assert.deepEqual(await keepPart(context, part), {
      status: 'unchanged',
      did: 'unchanged',
      story: 'plugins/x is already 2.0.0 with these files; 1 file was added on this host',
    })
    assert.deepEqual(log.lines, [])
    assert.equal(context.transaction.changed, false)
    const { tree_digest, tree_record } = row
    assert.deepEqual(context.results.get('plugins/x'), { tree: { tree_digest, tree_record } })
  })

  it('stays even if another artifact contains it', async t => {
    assert.ok((await judge(t, { row: OTHER_ARTIFACT })).part.intact)
  })

  const [first, ...others] = TREE.files
  assert.ok(first)
  const replaced: Record<string, Difference> = {
    'a file was changed': { files: { main: 'changed' } },
    'another origin installed it': { row: { slug: 'other' } },
    'its record is missing': { row: { tree_record: 'cd'.repeat(32) } },
    'the new tree has another file': { tree: treeOf({ ...FILES, more: '' }) },
    'the new tree lacks a file': { tree: treeOf({ main: 'same' }) },
    'the new tree has other bytes': { tree: treeOf({ ...FILES, main: 'else' }) },
    'the new tree has another mode': {
      row: OTHER_ARTIFACT,
      tree: { ...TREE, files: [{ ...first, mode: 0o755 }, ...others] },
    },
    'the new tree has a symlink in place of a file': { tree: treeOf({ 'lib/a': '1' }, { main: 'lib/a' }) },
  }
  for (const [name, difference] of Object.entries(replaced)) {
    it(`is replaced when ${name}`, async t => {
      assert.equal((await judge(t, difference)).part.intact, undefined)
    })
  }
})

describe('a part that was installed from the verified artifact itself', () => {
  const YAML = { 'plugin.yaml': 'name: x\nversion: "2.0.0"\n', 'src/main.py': 'pass' }
  const SECRET = 'secret of the host'

  /** The differences from an installation that a new extraction of the artifact would reproduce. */
  interface Other {
    files?: Record<string, string>
    row?: Partial<InstalledRow>
    keepPaths?: readonly string[]
    secret?: string
    /** Changes the tree after it was compared with its record. */
    meanwhile?(root: string): void
  }

  async function find(t: TestContext, { files = YAML, row: more = {}, meanwhile, ...request }: Other = {}) {
    const layout = await prepareTemporaryHost(t)
    const root = installPath(layout, PLACE)
    writeTreeOf(root, files)
    const row = rowOf({
      id: 'x',
      ...(await recordTreeAt(layout, root, treeOf(files))),
      keep_paths: ['data', '.env'],
      ...more,
    })
    await recordInstalled(layout, { rows: [row], removed: [] })
    const { keepPaths = ['.env', 'data'], secret } = request
    const deployment = deploymentOf(layout, { request: { keepPaths } })
    assert.deepEqual((await deployment.drift.of(PLACE))?.changed ?? [], [])
    meanwhile?.(root)
    const source = { origin: { contract: 'marketplace', slug: 'greeter' }, sha256: 'ab'.repeat(32) } as const
    const signing = { ...deployment, request: { ...deployment.request, pluginSecretKey: secret } }
    return await findIntactTree(signing, previousOf(PLACE, { installed: row }), source)
  }

  it('is found with its plugin.yaml', async t => {
    assert.equal((await find(t))?.pluginYaml?.version, '2.0.0')
  })

  const TRUSTED = { ...YAML, 'plugin.yaml': 'name: x\nversion: "2.0.0"\nexecution_mode: trusted\n' }
  const others: Record<string, Other> = {
    'another artifact': { row: { artifact_sha256: 'cd'.repeat(32) } },
    'another origin': { row: { slug: 'other' } },
    'other keep-paths': { keepPaths: ['.env'] },
    'a kept plugin.yaml': { keepPaths: ['plugin.yaml'], row: { keep_paths: ['plugin.yaml'] } },
    'a missing record': { row: { tree_record: 'cd'.repeat(32) } },
    'a missing plugin.sig': { files: TRUSTED, secret: SECRET },
    'a plugin.sig with another signature': { files: { ...TRUSTED, 'plugin.sig': '{}' }, secret: SECRET },
    'a plugin.sig that is no longer needed': { files: { ...TRUSTED, 'plugin.sig': '{}' } },
    'a plugin.yaml that was replaced after it was compared': {
      meanwhile: root => writeTree(root, { 'plugin.yaml': 'name: x\nversion: "9.9.9"\n' }),
    },
    'a plugin.yaml that became a symlink after it was compared': {
      meanwhile(root) {
        renameSync(join(root, 'plugin.yaml'), join(root, 'other.yaml'))
        symlinkSync('other.yaml', join(root, 'plugin.yaml'))
      },
    },
  }
  for (const [name, other] of Object.entries(others)) {
    it(`must be extracted again with ${name}`, async t => {
      assert.equal(await find(t, other), undefined)
    })
  }
})
