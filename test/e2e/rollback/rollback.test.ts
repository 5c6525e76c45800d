import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFileSync, existsSync, mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { acceptedReports, assertNothingStrays, commandsIn, listHost, readLocalReport } from '../harness/evidence.ts'
import {
  installedRow,
  openInstalled,
  openRetainingHost,
  openStage,
  planWith,
  pluginFiles,
  rollBack,
  type Stage,
  writeFiles,
} from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const RESTORED = [
  'version',
  'artifact_sha256',
  'tree_digest',
  'tree_record',
  'installed_at',
  'run_url',
  'deployment_id',
]

function summaryOf({ outputs }: ActionResult): string {
  const names = ['outcome', 'changed', 'version', 'previous-version', 'running-version', 'error-code']
  return names.map(name => outputs[name]).join(' ')
}

function mainOf({ root }: Stage): string {
  return readFileSync(join(root, 'plugins/greeter/src/main.py'), 'utf8')
}

describe('a rollback', () => {
  it('restores the newest snapshot with the current files of the host, without a hub', async t => {
    const stage = await openRetainingHost(t)
    const [old] = installedRow(stage).snapshots
    const reports = acceptedReports(stage).length
    const result = await rollBack(stage)
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(summaryOf(result), 'success true 1.0.0 2.0.0 1.0.0 ')
    assert.match(mainOf(stage), /1\.0\.0/)
    const place = join(stage.root, 'plugins/greeter')
    assert.equal(readFileSync(join(place, 'data/visitors'), 'utf8'), '2.0.0\n')
    assert.equal(readFileSync(join(place, '.env'), 'utf8'), 'LANGUAGE=en\n')
    const row = installedRow(stage)
    for (const key of RESTORED) assert.equal(Reflect.get(row, key), Reflect.get(old ?? {}, key), key)
    assert.deepEqual(
      row.snapshots.map(({ name }) => name),
      ['2-2.0.0'],
    )
    assert.equal(existsSync(join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0')), false)
    const report = readLocalReport(result)
    assert.deepEqual([report.rollback_of, report.version_source], ['2.0.0', 'snapshot'])
    assert.equal(
      report.states.map(({ state }) => state).join(' '),
      'pending finding_snapshots verifying_snapshots loading_plan resolving_sequence installing healthchecking succeeded',
    )
    assert.equal(acceptedReports(stage).length, reports)
    assert.match(result.summary, /^### ⏪ greeter 2\.0\.0 → 1\.0\.0 on \S+, restored from a snapshot\n/)
    assertNothingStrays(stage.root)
  })

  it('reports the restored version to the hub as a success, if it has all inputs for that', {
    skip: ONLY_IN_CI,
  }, async t => {
    const stage = await openRetainingHost(t)
    const hub = { 'hub-url': stage.hub.url, 'api-key': stage.apiKey, slug: 'greeter' }
    const incomplete = await rollBack(stage, { ...hub, slug: '' })
    assert.equal(incomplete.outputs['error-code'], 'invalid_input')
    const result = await rollBack(stage, hub)
    assert.equal(result.outputs['reported'], 'true', result.log)
    const row = acceptedReports(stage).at(-1)
    assert.deepEqual([row?.version, row?.status], ['1.0.0', 'success'])
  })

  it('asks once for the id if it gets a slug instead', async t => {
    const stage = await openRetainingHost(t)
    const { outputs, log } = await rollBack(stage, { id: '', slug: 'greeter' })
    assert.equal(outputs['error-code'], 'missing_input')
    const [error = '', ...more] = commandsIn(log, 'error')
    assert.match(error, /::id is required, but slug was given: [^;]*$/)
    assert.deepEqual(more, [])
  })

  it('restores any retained version by its name, and can itself be rolled back', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t, ['1.0.0', '2.0.0', '3.0.0'])
    assert.equal(summaryOf(await rollBack(stage, { 'to-version': 'v1.0.0' })), 'success true 1.0.0 3.0.0 1.0.0 ')
    const back = await rollBack(stage, { 'to-version': '3.0.0' })
    assert.equal(summaryOf(back), 'success true 3.0.0 1.0.0 3.0.0 ')
  })

  it('does not restore the version that it has replaced when it is repeated', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t)
    await rollBack(stage)
    const before = listHost(stage.root)
    const again = await rollBack(stage)
    assert.equal(summaryOf(again), 'failed false  1.0.0 1.0.0 no_snapshot')
    assert.match(again.log, /installed before 1\.0\.0: nothing was changed\. The host has 2\.0\.0\. .*to-version/)
    assert.deepEqual(listHost(stage.root), before)
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    await stage.deploy({ version: '3.0.0' })
    assert.equal(summaryOf(await rollBack(stage)), 'success true 1.0.0 3.0.0 1.0.0 ')
  })

  it('changes nothing if the named version is installed and intact', async t => {
    const stage = await openRetainingHost(t)
    const before = listHost(stage.root)
    const result = await rollBack(stage, { 'to-version': '2.0.0' })
    assert.equal(summaryOf(result), 'success false 2.0.0 2.0.0 2.0.0 ', result.log)
    assert.deepEqual(listHost(stage.root), before)
  })

  it('lists in a dry run what it would do, and changes nothing', async t => {
    const stage = await openRetainingHost(t)
    const before = listHost(stage.root)
    const result = await rollBack(stage, { 'dry-run': 'true' })
    assert.equal(summaryOf(result), 'success false 1.0.0 2.0.0 2.0.0 ', result.log)
    assert.match(result.log, /changed {2}plugins\/greeter\/src\/main\.py \(\d+ bytes\)/)
    assert.deepEqual(listHost(stage.root), before)
  })

  it('keeps a changed version as a modified snapshot, and never chooses that snapshot by itself', {
    skip: ONLY_IN_CI,
  }, async t => {
    const stage = await openRetainingHost(t)
    writeFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'print("patched")\n')
    const first = await rollBack(stage)
    assert.equal(first.outputs['outcome'], 'success', first.log)
    assert.deepEqual(
      [installedRow(stage).snapshots[0]?.name, installedRow(stage).snapshots[0]?.modified],
      ['2-2.0.0', true],
    )
    const second = await rollBack(stage)
    assert.equal(second.outputs['error-code'], 'no_snapshot')
    assert.match(second.log, /2\.0\.0 \(modified\)/)
    const named = await rollBack(stage, { 'to-version': '2.0.0' })
    assert.equal(named.outputs['outcome'], 'success', named.log)
    assert.match(mainOf(stage), /patched/)
    assert.match(commandsIn(named.log, 'warning').join(), /contains changes that were made on this host/)
    // The restored files are not those of an artifact, so there is no artifact digest.
    assert.equal(named.outputs['artifact-sha256'], '')
    assert.match(named.summary, /the restored files had been changed on this host/)
    const { artifact_sha256: sha256, modified } = readLocalReport(named)
    assert.deepEqual([sha256, modified], [null, true])
    const { root, workspace } = stage
    const inputs = { 'project-root': root, 'fail-on-drift': 'true' }
    const status = await runAction({ action: 'status', workspace, inputs })
    assert.deepEqual(
      [status.exitCode, status.outputs['error-code'], status.outputs['drift']],
      [1, 'drift_found', 'true'],
      status.log,
    )
    assert.match(
      status.log,
      /plugins\/greeter 2\.0\.0 was restored from a snapshot that had been changed on this host, so its files are not /,
    )
    const [listed] = JSON.parse(status.outputs['installed'] ?? '')
    assert.deepEqual([listed.version, listed.sha256, listed.modified], ['2.0.0', null, true])
    assert.equal(JSON.parse(status.outputs['drift-details'] ?? '')[0].modified, true)
    const repaired = await stage.deploy({ version: '2.0.0' })
    assert.deepEqual(
      [repaired.outputs['changed'], mainOf(stage).trim()],
      ['true', 'print("hello from 2.0.0")'],
      repaired.log,
    )
  })

  it('first recovers the host from a killed deployment', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t)
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    writeFiles(stage.workspace.path, {
      'host.yaml': "version: 1\nprovision: {greeter: {command: [/bin/sh, -c, 'kill -KILL $PPID']}}\n",
    })
    stage.writePlan(planWith('action: provision, plugin: greeter'))
    const dead = await stage.deploy({ version: '3.0.0', 'host-config': 'host.yaml' })
    assert.equal(dead.signal, 'SIGKILL')
    const result = await rollBack(stage)
    assert.equal(summaryOf(result), 'success true 1.0.0 2.0.0 1.0.0 ', result.log)
    assert.match(
      result.log,
      /The interrupted deployment of greeter 3\.0\.0 was recovered: it was rolled back to 2\.0\.0/,
    )
    assert.equal(existsSync(join(stage.root, '.hub-deploy/journal.jsonl')), false)
  })

  it('keeps the current file at a kept path that both versions have, and puts the restored one into the new snapshot', {
    skip: ONLY_IN_CI,
  }, async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    for (const version of ['1.0.0', '2.0.0']) {
      await stage.publish(version, pluginFiles(version, { 'etc/local.conf': `${version}\n` }))
      await stage.deploy({ version, 'keep-paths': 'data' })
    }
    writeFiles(join(stage.root, 'plugins/greeter'), { 'data/visitors': '17\n' })
    const result = await rollBack(stage, { 'keep-paths': 'data\netc/local.conf' })
    assert.equal(result.outputs['outcome'], 'success', result.log)
    const [own, other] = ['plugins/greeter', '.hub-deploy/snapshots/plugins/greeter/2-2.0.0'].map(
      folder => `${folder}/etc/local.conf`,
    )
    assert.deepEqual(
      [own, other].map(path => readFileSync(join(stage.root, path ?? ''), 'utf8')),
      ['2.0.0\n', '1.0.0\n'],
    )
    assert.deepEqual(installedRow(stage).snapshots[0]?.kept_paths, ['etc/local.conf'])
  })
})

const SOURCE = 'src/main.py'
const RETAINED = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'
/** No path can be longer on Linux, so nothing below such a directory can be reached once the tree has moved deeper. */
const LONGEST_PATH = 4095

/** What a service leaves in its own tree. */
const LEFT: Record<string, (tree: string) => void> = {
  'a file that nobody may read': tree => writeFileSync(join(tree, 'key'), 'k', { mode: 0 }),
  'a file of a terabyte': tree => {
    writeFileSync(join(tree, 'cache'), '')
    truncateSync(join(tree, 'cache'), 2 ** 40)
  },
  'two names that are not UTF-8': tree => {
    for (const byte of [0xfe, 0xff]) writeFileSync(Buffer.concat([Buffer.from(`${tree}/`), Buffer.from([byte])]), '')
  },
  'a name with a line break, a pipe and a socket': tree => {
    writeFileSync(join(tree, 'a\nb'), '')
    execFileSync('mkfifo', [join(tree, 'pipe')])
    execFileSync(process.execPath, ['-e', `net.createServer().listen('socket', () => process.exit())`], { cwd: tree })
  },
  'more files than are listed': tree => {
    mkdirSync(join(tree, 'many'))
    for (let index = 0; index <= 10_000; index++) writeFileSync(join(tree, 'many', String(index)), '')
  },
  'directories nested as deeply as possible': tree => {
    let path = tree
    while (path.length + 51 <= LONGEST_PATH) path += `/${'d'.repeat(50)}`
    mkdirSync(path, { recursive: true })
    writeFileSync(`${tree}/d`, '')
  },
}

describe('a version whose service left files in its own tree', () => {
  /** Installs 1.0.0, and updates it after its tree was changed. */
  async function openLeft(t: TestContext, change: (tree: string) => void) {
    const stage = await openInstalled(pluginFiles('1.0.0'))
    t.after(() => stage.close())
    const { tree_digest: digest } = installedRow(stage)
    change(join(stage.root, 'plugins/greeter'))
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
    const { exitCode, log } = await stage.deploy({ version: '2.0.0' })
    assert.equal(exitCode, 0, log)
    return { stage, log, digest }
  }

  for (const [name, leave] of sampled(Object.entries(LEFT), 3))
    it(`can be restored by its name: ${name}`, async t => {
      const { stage, log, digest } = await openLeft(t, leave)
      assert.doesNotMatch(log, /has no record of its files/)
      const [snapshot] = installedRow(stage).snapshots
      assert.deepEqual([snapshot?.modified, snapshot?.tree_digest], [true, digest])
      const result = await rollBack(stage, { 'to-version': '1.0.0' })
      assert.equal(summaryOf(result), 'success true 1.0.0 2.0.0 1.0.0 ', result.log)
      assert.match(mainOf(stage), /hello from 1\.0\.0/)
      assert.match(commandsIn(result.log, 'warning').join(), /Nothing is known of the added files: \S/)
    })

  it('can be restored even if the service still wrote to its log after the switch', async t => {
    const { stage } = await openLeft(t, tree => writeFileSync(join(tree, 'log'), 'started\n'))
    appendFileSync(join(stage.root, RETAINED, 'log'), 'stopped\n')
    const result = await rollBack(stage, { 'to-version': '1.0.0' })
    assert.equal(summaryOf(result), 'success true 1.0.0 2.0.0 1.0.0 ', result.log)
  })

  it('is not restored if an installed file was changed later, and the message names that file', async t => {
    const { stage } = await openLeft(t, tree => writeFileSync(join(tree, 'log'), ''))
    writeFileSync(join(stage.root, RETAINED, SOURCE), 'print("evil")\n')
    const { outputs, log } = await rollBack(stage, { 'to-version': '1.0.0' })
    assert.deepEqual([outputs['error-code'], outputs['changed']], ['snapshot_modified', 'false'], log)
    assert.match(log, /after it had become a snapshot \(src\/main\.py changed\)/)
  })

  it('can be restored, with a warning that names the file, if an installed file has become too large to read', {
    skip: ONLY_IN_CI,
  }, async t => {
    const { stage, log } = await openLeft(t, tree => truncateSync(join(tree, SOURCE), 2 ** 40))
    assert.match(commandsIn(log, 'warning').join(), /bytes were not read, .*: src\/main\.py \(1100 GB: /)
    const result = await rollBack(stage, { 'to-version': '1.0.0' })
    assert.equal(summaryOf(result), 'success true 1.0.0 2.0.0 1.0.0 ', result.log)
    assert.equal(statSync(join(stage.root, 'plugins/greeter', SOURCE)).size, 2 ** 40)
  })
})

/** The `keep-paths` of each deployment. The rollbacks leave that input at its default. */
const KEEP_PATHS = '.env\ndata\nuploads\nconf'

describe('a rollback that does not repeat the keep-paths of the deployments', () => {
  /**
   * Opens a host with two versions. The artifacts ship a default for one of the kept paths, and the host has its own
   * file in another kept path.
   */
  async function openKeepingHost(t: TestContext): Promise<Stage> {
    const stage = await openStage()
    t.after(() => stage.close())
    for (const version of ['1.0.0', '2.0.0']) {
      await stage.publish(version, pluginFiles(version, { 'conf/app.conf': `shipped with ${version}\n` }))
      await stage.deploy({ version, 'keep-paths': KEEP_PATHS })
      writeFiles(join(stage.root, 'plugins/greeter'), { 'uploads/photo': 'one of its kind\n' })
    }
    return stage
  }

  it('leaves the data of the host in the live tree', { skip: ONLY_IN_CI }, async t => {
    const stage = await openKeepingHost(t)
    writeFiles(join(stage.root, 'plugins/greeter'), { 'conf/app.conf': 'edited here\n' })
    const result = await rollBack(stage)
    assert.equal(summaryOf(result), 'success true 1.0.0 2.0.0 1.0.0 ', result.log)
    const place = join(stage.root, 'plugins/greeter')
    assert.equal(readFileSync(join(place, 'uploads/photo'), 'utf8'), 'one of its kind\n')
    assert.equal(readFileSync(join(place, 'conf/app.conf'), 'utf8'), 'edited here\n')
    const { keep_paths: keepPaths, snapshots } = installedRow(stage)
    assert.deepEqual(keepPaths, KEEP_PATHS.split('\n'))
    assert.deepEqual(
      snapshots.map(({ name, modified }) => [name, modified]),
      [['2-2.0.0', undefined]],
    )
    const back = await rollBack(stage, { 'to-version': '2.0.0' })
    assert.equal(back.outputs['outcome'], 'success', back.log)
    assert.equal(readFileSync(join(place, 'uploads/photo'), 'utf8'), 'one of its kind\n')
    const same = await stage.deploy({ version: '2.0.0', 'keep-paths': KEEP_PATHS })
    assert.deepEqual([same.outputs['outcome'], same.outputs['changed']], ['success', 'false'], same.log)
  })

  it('does not list that data in a dry run', { skip: ONLY_IN_CI }, async t => {
    const { log } = await rollBack(await openKeepingHost(t), { 'dry-run': 'true' })
    assert.doesNotMatch(log, /uploads\/photo|differ from what was installed/)
    assert.match(log, /does not name plugins\/greeter\/uploads, plugins\/greeter\/conf,/)
  })

  it('restores the data that stayed in the snapshot, when a later deployment has kept less', {
    skip: ONLY_IN_CI,
  }, async t => {
    const stage = await openRetainingHost(t)
    await stage.deploy({ version: '2.0.0', 'keep-paths': 'src' })
    writeFiles(join(stage.root, 'plugins/greeter'), { 'src/main.py': 'edited here\n' })
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    // The directory of the entry point does not stay by itself.
    await stage.deploy({ version: '3.0.0' })
    assert.match(mainOf(stage), /3\.0\.0/)
    const kept = installedRow(stage).snapshots.at(-1)
    assert.deepEqual([kept?.name, kept?.kept_paths], ['3-2.0.0', ['src']])
    for (const version of ['4.0.0', '5.0.0', '6.0.0']) {
      await stage.publish(version, pluginFiles(version))
      await stage.deploy({ version, 'keep-snapshots': '1' })
    }
    const result = await rollBack(stage, { 'to-version': '2.0.0' })
    assert.equal(result.outputs['outcome'], 'success', result.log)
    assert.equal(mainOf(stage), 'edited here\n')
  })
})

describe('a deployment after a rollback', () => {
  const latest = (stage: Stage) => stage.deploy({ version: 'latest' })

  it('does not install the bad version again as latest, until it is named or newer bytes are published', async t => {
    const stage = await openRetainingHost(t)
    await rollBack(stage)
    const refused = await latest(stage)
    assert.deepEqual(
      [refused.outputs['error-code'], refused.outputs['running-version']],
      ['downgrade_refused', '1.0.0'],
    )
    assert.match(
      refused.log,
      /already replaced the hub's latest version, 2\.0\.0 .* and now runs 1\.0\.0 \(installed on /,
    )
    assert.match(mainOf(stage), /1\.0\.0/)
    await stage.publish('2.0.1', pluginFiles('2.0.1'))
    assert.equal(summaryOf(await latest(stage)), 'success true 2.0.1 1.0.0 2.0.1 ')
  })

  it('installs the bad version if it is named', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t)
    await rollBack(stage)
    assert.equal(summaryOf(await stage.deploy({ version: '2.0.0' })), 'success true 2.0.0 1.0.0 2.0.0 ')
  })

  it('changes nothing if the restored version is requested', { skip: ONLY_IN_CI }, async t => {
    const stage = await openRetainingHost(t)
    await rollBack(stage)
    assert.equal(summaryOf(await stage.deploy({ version: '1.0.0' })), 'success false 1.0.0 1.0.0 1.0.0 ')
  })
})
