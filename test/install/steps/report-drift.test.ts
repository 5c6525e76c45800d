import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { treeRecordPath } from '../../../src/install/host/layout.ts'
import { buildLocalReport, notSent } from '../../../src/install/reports/local-report.ts'
import { besideDriftCheck, noteModifiedSnapshots, reportDrift } from '../../../src/install/steps/report-drift.ts'
import { buildEnd } from '../../../src/install/transaction/end.ts'
import { collectLog } from '../collected-log.ts'
import { GREETER, installRecorded } from '../host/recorded-tree.ts'
import { contextOf, deploymentOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

const FILES = Object.fromEntries(Array.from({ length: 600 }, (_, index) => [`file-${index}`, 'x']))

async function makeDeployment(t: TestContext, signal = new AbortController().signal) {
  const layout = await prepareTemporaryHost(t)
  const { root, tree_record } = await installRecorded(layout, FILES)
  const log = collectLog()
  return { log, root, tree_record, deployment: deploymentOf(layout, { tools: { log, signal } }) }
}

describe('reportDrift', () => {
  it('warns of a part once, whoever asks again', async t => {
    const { log, root, deployment } = await makeDeployment(t)
    writeFileSync(join(root, 'by-hand'), '')
    await reportDrift(deployment, [GREETER, { shelf: 'extensions', id: 'other' }])
    await reportDrift(deployment, [GREETER])
    assert.equal(log.lines.length, 1)
    const none = { removed: [], changed: [] }
    assert.deepEqual(deployment.record.facts.drift, [{ ...GREETER, version: '2.0.0', added: ['by-hand'], ...none }])
  })

  it('adds at most 500 paths to the report, and how many more there are', async t => {
    const { log, root, deployment } = await makeDeployment(t)
    for (const path of Object.keys(FILES)) rmSync(join(root, path))
    await reportDrift(deployment, [GREETER])
    const [entry] = deployment.record.facts.drift ?? []
    assert.deepEqual([entry?.removed.length, entry?.omitted], [500, 100])
    assert.match(log.lines[0] ?? '', / and 580 more\./)
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
      await reportDrift(deployment, [GREETER])
      const none = { added: [], removed: [], changed: [] }
      assert.deepEqual(deployment.record.facts.drift, [{ ...GREETER, version: '2.0.0', ...none, instead: found }])
      assert.deepEqual(log.lines, [
        `warning Files on this host are not as they were installed: plugins/greeter (${words}).`,
      ])
    })
  }

  it('adds at most 64 KiB of paths to the report', async t => {
    const { root, deployment } = await makeDeployment(t)
    const deep = Array.from({ length: 15 }, () => 'd'.repeat(200)).join('/')
    writeTree(root, Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`${deep}/${index}`, ''])))
    await reportDrift(deployment, [GREETER])
    const [entry] = deployment.record.facts.drift ?? []
    assert.equal((entry?.added.length ?? 0) + (entry?.omitted ?? 0), 50)
    assert.ok(JSON.stringify(entry).length < 66_000)
  })

  it('reports what differs only now, in place of what differed before', async t => {
    const { log, root, deployment } = await makeDeployment(t)
    writeTree(root, { first: '' })
    await reportDrift(deployment, [GREETER])
    writeTree(root, { second: '' })
    await besideDriftCheck(deployment, [GREETER], Promise.resolve())
    assert.deepEqual(
      deployment.record.facts.drift?.map(({ added }) => added),
      [['first', 'second']],
    )
    assert.equal(log.lines.length, 2)
  })

  it('distinguishes an installed part that cannot be compared', async t => {
    const { deployment, tree_record } = await makeDeployment(t)
    rmSync(treeRecordPath(deployment.layout, tree_record))
    await reportDrift(deployment, [GREETER, { shelf: 'extensions', id: 'other' }])
    const none = { added: [], removed: [], changed: [] }
    assert.deepEqual(deployment.record.facts.drift, [{ ...GREETER, version: '2.0.0', ...none, compared: false }])
  })

  it('says nothing of parts as they were installed', async t => {
    const { log, deployment } = await makeDeployment(t)
    await reportDrift(deployment, [GREETER])
    assert.deepEqual([log.lines, deployment.record.facts.drift], [[], undefined])
  })
})

describe('the snapshot of a modified tree', () => {
  for (const outcome of ['success', 'failed', 'rolled_back', 'inconsistent'] as const) {
    it(`${outcome === 'success' ? 'is' : 'is not'} in the report of a deployment that ends as ${outcome}`, async t => {
      const { root, deployment } = await makeDeployment(t)
      writeFileSync(join(root, 'by-hand'), '')
      await reportDrift(deployment, [GREETER])
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

describe('besideDriftCheck', () => {
  it('returns what the work returns, and fails as it does, after the drift is reported', async t => {
    const { root, deployment } = await makeDeployment(t)
    writeFileSync(join(root, 'by-hand'), '')
    const refused = new Error('no such version')
    await assert.rejects(besideDriftCheck(deployment, [GREETER], Promise.reject(refused)), error => error === refused)
    assert.equal(deployment.record.facts.drift?.length, 1)
    assert.equal(await besideDriftCheck(deployment, [GREETER], Promise.resolve('fetched')), 'fetched')
  })

  it('loses no result of the work over a cancelled check', async t => {
    const { log, deployment } = await makeDeployment(t, AbortSignal.abort(new Error('cancelled')))
    assert.equal(await besideDriftCheck(deployment, [GREETER], Promise.resolve('fetched')), 'fetched')
    assert.deepEqual(log.lines, [])
  })
})
