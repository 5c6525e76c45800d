import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { linkSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { PartTree } from '../../../src/install/files/extracted-tree.ts'
import { installPath, type Place, treeRecordPath } from '../../../src/install/host/layout.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import { buildLocalReport, notSent } from '../../../src/install/reports/local-report.ts'
import {
  findIntactTree,
  keepIfIntact,
  noteModifiedSnapshots,
  recordDrift,
  warnOfDrift,
} from '../../../src/install/steps/drift.ts'
import { keepPart } from '../../../src/install/steps/perform-step.ts'
import { writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf, previousOf } from '../prepared-deployment.ts'
import { collectLog, prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { GREETER, installRecorded, recordTreeAt, treeOf, writeTreeOf } from '../trees/recorded-tree.ts'

const FILES = { 'file-0': 'x', 'file-1': 'x' }
const MANY_FILES = Object.fromEntries(Array.from({ length: 600 }, (_, index) => [`file-${index}`, 'x']))

async function makeDeployment(t: TestContext, files: Record<string, string> = FILES) {
  const layout = await prepareTemporaryHost(t)
  const { root, tree_record } = await installRecorded(layout, files)
  const log = collectLog()
  const { signal } = new AbortController()
  return { log, root, tree_record, deployment: deploymentOf(layout, { tools: { log, signal } }) }
}

const NAME = { shelf: GREETER.shelf, id: GREETER.id }

describe('recordDrift', () => {
  it('names a part once, however often it is called', async t => {
    const { log, root, deployment } = await makeDeployment(t)
    writeFileSync(join(root, 'by-hand'), '')
    await recordDrift(deployment, [GREETER, { shelf: 'extensions', id: 'other', directory: 'extensions' }])
    await recordDrift(deployment, [GREETER])
    assert.deepEqual(log.lines, [])
    const none = { removed: [], changed: [] }
    assert.deepEqual(deployment.record.facts.drift, [{ ...NAME, version: '2.0.0', added: ['by-hand'], ...none }])
  })

  it('adds at most 500 paths to the report, and counts the others', async t => {
    const { log, root, deployment } = await makeDeployment(t, MANY_FILES)
    for (const path of Object.keys(MANY_FILES)) rmSync(join(root, path))
    await recordDrift(deployment, [GREETER])
    const [entry] = deployment.record.facts.drift ?? []
    assert.deepEqual([entry?.removed.length, entry?.omitted], [500, 100])
    warnOfDrift(deployment)
    assert.match(log.lines[0] ?? '', / and 580 more\./)
  })

  it('says that it has not counted every added file', async t => {
    const { log, root, deployment } = await makeDeployment(t)
    writeFileSync(join(root, '0'), '')
    // Links one file many times: creating as many files takes ten times as long.
    for (let index = 1; index <= 10_000; index++) linkSync(join(root, '0'), join(root, String(index)))
    await recordDrift(deployment, [GREETER])
    const [entry] = deployment.record.facts.drift ?? []
    assert.deepEqual([entry?.added.length, entry?.omitted, entry?.uncounted], [500, 9500, true])
    warnOfDrift(deployment)
    assert.match(log.lines[0] ?? '', / and at least 9,980 more\./)
  })

  const instead: Record<string, { put: (root: string) => void; words: string }> = {
    nothing: { put: () => {}, words: 'missing' },
    file: { put: root => writeFileSync(root, ''), words: 'a file instead of a directory' },
    symlink: { put: root => symlinkSync('/tmp', root), words: 'a symlink instead of a directory' },
    other: { put: root => execFileSync('mkfifo', [root]), words: 'not a directory' },
  }
  for (const [found, { put, words }] of Object.entries(instead)) {
    it(`says in one entry that a part is ${words}, and lists none of its files`, async t => {
      const { log, root, deployment } = await makeDeployment(t)
      rmSync(root, { recursive: true })
      put(root)
      await recordDrift(deployment, [GREETER])
      const none = { added: [], removed: [], changed: [] }
      assert.deepEqual(deployment.record.facts.drift, [{ ...NAME, version: '2.0.0', ...none, instead: found }])
      warnOfDrift(deployment)
      assert.deepEqual(log.lines, [
        `warning Files on this host differ from what was installed: plugins/greeter (${words}).`,
      ])
    })
  }

  it('adds at most 64 KiB of paths to the report', async t => {
    const { root, deployment } = await makeDeployment(t)
    const deep = Array.from({ length: 15 }, () => 'd'.repeat(200)).join('/')
    writeTree(root, Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`${deep}/${index}`, ''])))
    await recordDrift(deployment, [GREETER])
    const [entry] = deployment.record.facts.drift ?? []
    assert.equal((entry?.added.length ?? 0) + (entry?.omitted ?? 0), 50)
    assert.ok(JSON.stringify(entry).length < 66_000)
  })

  it('reports the current differences, in place of earlier ones', async t => {
    const { root, deployment } = await makeDeployment(t)
    writeTree(root, { first: '' })
    await recordDrift(deployment, [GREETER])
    writeTree(root, { second: '' })
    await deployment.drift.again(GREETER)
    await recordDrift(deployment, [GREETER])
    assert.deepEqual(
      deployment.record.facts.drift?.map(({ added }) => added),
      [['first', 'second']],
    )
  })

  it('marks an installed part that cannot be compared', async t => {
    const { deployment, tree_record } = await makeDeployment(t)
    rmSync(treeRecordPath(deployment.layout, tree_record))
    await recordDrift(deployment, [GREETER, { shelf: 'extensions', id: 'other', directory: 'extensions' }])
    const none = { added: [], removed: [], changed: [] }
    assert.deepEqual(deployment.record.facts.drift, [{ ...NAME, version: '2.0.0', ...none, compared: false }])
  })

  it('does not mention parts that are as they were installed', async t => {
    const { log, deployment } = await makeDeployment(t)
    await recordDrift(deployment, [GREETER])
    warnOfDrift(deployment)
    assert.deepEqual([log.lines, deployment.record.facts.drift], [[], undefined])
  })
})

describe('the snapshot of a modified tree', () => {
  for (const outcome of ['success', 'failed', 'rolled_back', 'inconsistent'] as const) {
    it(`${outcome === 'success' ? 'is' : 'is not'} in the report of a deployment that ends as ${outcome}`, async t => {
      const { root, deployment } = await makeDeployment(t)
      writeFileSync(join(root, 'by-hand'), '')
      await recordDrift(deployment, [GREETER])
      const context = await contextOf(t, deployment)
      context.results.set('plugins/greeter', { snapshot: '1-2.0.0', modified: { tree_digest: null } })
      await noteModifiedSnapshots(context)
      const circumstances = { reported: notSent(null), running_version: null }
      const { drift } = buildLocalReport(deployment.record, buildEnd(new Date(), { outcome }), circumstances)
      const snapshot = outcome === 'success' ? '.hub-deploy/snapshots/plugins/greeter/1-2.0.0' : undefined
      assert.equal(drift?.[0]?.snapshot, snapshot)
    })
  }
})

const PLACE: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }
const INTACT_FILES = { main: 'same', 'lib/a': '1' }
const TREE = treeOf(INTACT_FILES)
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
  writeTreeOf(path, INTACT_FILES)
  const row = rowOf({ id: 'x', ...(await recordTreeAt(layout, path, TREE)), ...more })
  await recordInstalled(layout, { rows: [row], removed: [] })
  writeTree(path, files)
  const part = partOf(layout, { previous: previousOf({ installed: row, version: row.version }), tree })
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
    'the new tree has another file': { tree: treeOf({ ...INTACT_FILES, more: '' }) },
    'the new tree lacks a file': { tree: treeOf({ main: 'same' }) },
    'the new tree has other bytes': { tree: treeOf({ ...INTACT_FILES, main: 'else' }) },
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
    return await findIntactTree(signing, { ...PLACE, previous: previousOf({ installed: row }) }, source)
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
