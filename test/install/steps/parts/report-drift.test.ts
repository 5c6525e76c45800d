import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { linkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { treeRecordPath } from '../../../../src/install/host/layout.ts'
import { buildLocalReport, notSent } from '../../../../src/install/reports/local-report.ts'
import { noteModifiedSnapshots, recordDrift, warnOfDrift } from '../../../../src/install/steps/parts/report-drift.ts'
import { buildEnd } from '../../../../src/install/transaction/end.ts'
import { collectLog } from '../../collected-log.ts'
import { GREETER, installRecorded } from '../../host/trees/recorded-tree.ts'
import { contextOf, deploymentOf } from '../../prepared-deployment.ts'
import { prepareTemporaryHost } from '../../prepared-host.ts'
import { writeTree } from '../../temporary-directory.ts'

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
    await recordDrift(deployment, [GREETER, { shelf: 'extensions', id: 'other' }])
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
    await recordDrift(deployment, [GREETER, { shelf: 'extensions', id: 'other' }])
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
