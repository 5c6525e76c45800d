import assert from 'node:assert/strict'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { delimiter, join } from 'node:path'
import { afterEach, beforeEach, describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import type { ActionResult } from '../../../local/runner.ts'
import type { InstalledRow, RemovedRow, SnapshotRow } from '../../../src/install/host/rows.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { commandsIn, listOwn, readLocalReport } from '../harness/evidence.ts'
import { filesWith, openProjectStage, type ProjectStage } from '../harness/project-stage.ts'
import { openInstalled, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'
import { openGate } from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

type AnyStage = Pick<Stage, 'root'>

function edit(stage: AnyStage, files: Record<string, string>): void {
  writeFiles(stage.root, files)
}

function readRecord({ root }: AnyStage): { installed: InstalledRow[]; removed?: RemovedRow[] } {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8'))
}

function snapshotsOf(stage: AnyStage): SnapshotRow[] {
  const { installed, removed = [] } = readRecord(stage)
  return [...installed, ...removed].flatMap(row => row.snapshots)
}

/** The path of the old version after the switch. */
const KEPT = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'

/** The warnings about drift. */
function warnings({ log }: ActionResult): string[] {
  return commandsIn(log, 'warning').filter(line => line.includes('differ from what was installed'))
}

describe('files that were changed on the host since they were installed', () => {
  let stage: Stage
  beforeEach(async () => {
    stage = await openInstalled(pluginFiles('1.0.0', { 'src/old.py': 'old' }))
  })
  afterEach(() => stage.close())

  it('are not called the installed version if another tool put another version there', async () => {
    edit(stage, { 'plugins/greeter/plugin.yaml': 'name: greeter\nversion: "0.9.0"\n' })
    const refused = await stage.deploy({ version: '7.0.0' })
    assert.equal(refused.outputs['running-version'], '0.9.0', refused.log)
    assert.match(refused.summary, /\*\*Now:\*\* 0\.9\.0, as before\./)
    assert.doesNotMatch(refused.summary, /1\.0\.0/)
    const repaired = await deployed()
    assert.equal(repaired.outputs['previous-version'], '0.9.0')
    const [snapshot] = snapshotsOf(stage)
    assert.deepEqual(
      [snapshot?.name, snapshot?.version, snapshot?.artifact_sha256, snapshot?.modified],
      ['1-0.9.0', '0.9.0', null, true],
    )
  })

  async function deployed(inputs: Record<string, string> = {}): Promise<ActionResult> {
    const result = await stage.deploy(inputs)
    assert.equal(result.exitCode, 0, result.log)
    return result
  }

  async function update(version: string, inputs: Record<string, string> = {}): Promise<ActionResult> {
    await stage.publish(version, pluginFiles(version, { 'src/old.py': 'old' }))
    return await deployed(inputs)
  }

  function driftByHand(): void {
    edit(stage, { 'plugins/greeter/src/main.py': 'by hand', 'plugins/greeter/src/extra.py': 'more' })
    rmSync(join(stage.root, 'plugins/greeter/src/old.py'))
  }

  const DRIFT = [
    {
      shelf: 'plugins',
      id: 'greeter',
      version: '1.0.0',
      added: ['src/extra.py'],
      removed: ['src/old.py'],
      changed: ['src/main.py'],
    },
  ]

  it('are reported and marked even if they change while the new version is made durable', async () => {
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
    const bin = join(stage.folder, 'bin')
    mkdirSync(bin)
    // The sleeps are longer than the time for which the run relies on an earlier comparison.
    const edit = `sleep 0.6; echo late > ${join(stage.root, 'plugins/greeter/src/main.py')}; sleep 0.6`
    writeFileSync(join(bin, 'sync'), `#!/bin/sh\n${edit}\n`, { mode: 0o755 })
    const result = await stage.deploy({}, { env: { PATH: [bin, process.env['PATH']].join(delimiter) } })
    assert.equal(result.outputs['outcome'], 'success', result.log)
    assert.deepEqual(
      readLocalReport(result).drift?.map(({ changed }) => changed),
      [['src/main.py']],
    )
    assert.equal(snapshotsOf(stage)[0]?.modified, true)
  })

  it('are named in one warning, in the summary and in the report of the update that replaces them', async () => {
    driftByHand()
    const result = await update('1.1.0')
    const names =
      'greeter/src/main.py (changed), plugins/greeter/src/old.py (removed), plugins/greeter/src/extra.py (added)'
    assert.equal(warnings(result).length, 1)
    assert.ok(warnings(result)[0]?.includes(names), result.log)
    for (const path of ['src/main.py', 'src/old.py', 'src/extra.py'])
      assert.ok(result.summary.includes(`plugins/greeter/${path}`), result.summary)
    const snapshot = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'
    assert.deepEqual(readLocalReport(result).drift, [{ ...DRIFT[0], snapshot }])
    assert.ok(result.summary.includes(snapshot), result.summary)
    assert.ok(result.log.includes(`which was changed on this host, is now ${join(stage.root, snapshot)}.`), result.log)
  })

  it('stay as a modified snapshot with a record of their own, even if the plan retains nothing', async () => {
    stage.writePlan(PLUGIN_PLAN.replace('snapshot: true, ', ''))
    const [before] = readRecord(stage).installed
    driftByHand()
    await update('1.1.0')
    const [snapshot] = snapshotsOf(stage)
    assert.deepEqual([snapshot?.name, snapshot?.modified], ['1-1.0.0', true])
    assert.notEqual(snapshot?.tree_digest, before?.tree_digest)
    assert.ok(listOwn(stage, 'trees').includes(`${snapshot?.tree_record}.tree`))
    const kept = join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0/src/main.py')
    assert.equal(readFileSync(kept, 'utf8'), 'by hand')
    await update('1.2.0')
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), ['1-1.0.0'])
  })

  it('are replaced even if one of them is a file of a terabyte, which is not read', {
    skip: ONLY_IN_CI,
  }, async () => {
    edit(stage, { 'plugins/greeter/src/cache.bin': '' })
    truncateSync(join(stage.root, 'plugins/greeter/src/cache.bin'), 2 ** 40)
    const [before] = readRecord(stage).installed
    await update('1.1.0')
    const [snapshot] = snapshotsOf(stage)
    assert.deepEqual([snapshot?.modified, snapshot?.tree_digest], [true, before?.tree_digest])
  })

  const late = async (t: TestContext, path: string): Promise<Record<string, string>> => {
    const gate = await openGate(t, stage.hub.url, async route => {
      if (route !== 'artifact') return
      // Gives the run time to finish the work that it does during the request.
      await setTimeout(500)
      edit(stage, { [`plugins/greeter/${path}`]: 'LD_PRELOAD=/tmp/evil.so\n' })
    })
    return { 'hub-url': gate.url }
  }

  it('are repaired and reported even if they were changed during the download', async t => {
    const result = await deployed(await late(t, 'src/main.py'))
    assert.equal(result.outputs['changed'], 'true')
    assert.deepEqual(readLocalReport(result).drift?.[0]?.changed, ['src/main.py'])
    assert.notEqual(readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8'), 'LD_PRELOAD=/tmp/evil.so\n')
  })

  it('stay as a modified snapshot even if they were changed during the download', { skip: ONLY_IN_CI }, async t => {
    const result = await update('1.1.0', await late(t, 'src/main.py'))
    const [snapshot] = snapshotsOf(stage)
    assert.equal(snapshot?.modified, true)
    assert.deepEqual(readLocalReport(result).drift?.[0]?.changed, ['src/main.py'])
  })

  it('never become settings: a template that was changed during the download is repaired first', async t => {
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'env.template': 'A=1\n' }))
    await deployed()
    stage.writePlan(
      `${PLUGIN_PLAN.trimEnd()}\n  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/env.template, depends_on: [files]}\n`,
    )
    await deployed(await late(t, 'env.template'))
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter.env'), 'utf8'), 'A=1\n')
  })

  for (const damage of sampled(['missing', 'damaged'] as const, 1))
    it(`do not become a genuine snapshot if their record is ${damage}, and the report says that nothing was compared`, async () => {
      edit(stage, { 'plugins/greeter/src/main.py': 'by hand' })
      for (const name of listOwn(stage, 'trees')) {
        const path = join(stage.root, '.hub-deploy/trees', name)
        if (damage === 'missing') rmSync(path)
        else writeFileSync(path, 'x')
      }
      const result = await update('1.1.0')
      const [snapshot] = snapshotsOf(stage)
      assert.deepEqual([snapshot?.modified, snapshot?.tree_digest], [true, null])
      assert.equal(snapshot?.tree_record, undefined)
      assert.match(result.log, /its snapshot counts as modified/)
      assert.match(result.summary, /Not compared with what was installed: .*plugins\/greeter/)
      assert.equal(readLocalReport(result).drift?.[0]?.compared, false)
    })

  it('are never pruned in a hurry, never push out a genuine snapshot, and never become the last good one', {
    skip: ONLY_IN_CI,
  }, async () => {
    for (const version of ['1.1.0', '1.2.0', '1.3.0', '1.4.0']) {
      edit(stage, { 'plugins/greeter/src/main.py': `by hand before ${version}` })
      const { log } = await update(version, { 'keep-snapshots': '2' })
      assert.doesNotMatch(log, /last good/)
    }
    const modified = ['1-1.0.0', '2-1.1.0', '3-1.2.0', '4-1.3.0']
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), modified)
    await update('1.5.0', { 'keep-snapshots': '1' })
    const result = await update('1.6.0', { 'keep-snapshots': '1' })
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), [...modified, '6-1.5.0'])
    assert.match(result.log, /4-1\.3\.0 of plugins\/greeter stays: it contains changes that were made on this host/)
    assert.match(result.log, /6-1\.5\.0 of plugins\/greeter stays: it is the last good one/)
  })

  it('are repaired by the same version, as the summary and the log say', async () => {
    edit(stage, { 'plugins/greeter/src/main.py': 'by hand' })
    const result = await deployed()
    assert.equal(result.outputs['changed'], 'true')
    assert.match(result.summary, /^### ✅ greeter 1\.0\.0 was repaired on host-1\n/)
    assert.match(result.log, /\ngreeter 1\.0\.0 was repaired on host-1\.\n$/)
    assert.doesNotMatch(result.summary, /already on/)
    const again = await deployed()
    assert.equal(again.outputs['changed'], 'false')
    assert.deepEqual([warnings(again), readLocalReport(again).drift], [[], []])
  })

  it('have no snapshot in the summary if none was made', { skip: ONLY_IN_CI }, async () => {
    edit(stage, { 'plugins/greeter/by-hand': '' })
    const added = await deployed()
    assert.match(added.log, /greeter 1\.0\.0 is already on host-1; 1 file was added on this host\./)
    assert.doesNotMatch(added.log, /unmodified/)
    rmSync(join(stage.root, 'plugins/greeter'), { recursive: true })
    const missing = await deployed()
    assert.match(warnings(missing)[0] ?? '', /installed: plugins\/greeter \(missing\)\.$/)
    for (const result of [added, missing]) {
      assert.doesNotMatch(result.log + result.summary, /snapshots\//)
      assert.equal(readLocalReport(result).drift?.[0]?.snapshot, undefined)
    }
  })

  it('are reported by a dry run, and not by a run that is refused before it replaces them', async () => {
    driftByHand()
    const dry = await deployed({ 'dry-run': 'true' })
    assert.equal(warnings(dry).length, 1)
    assert.ok(dry.summary.includes('src/extra.py'))
    const refused = await stage.deploy({ 'signing-secret': 'another-secret-of-the-hub' })
    assert.equal(refused.outputs['error-code'], 'signature_mismatch')
    assert.deepEqual([warnings(refused), readLocalReport(refused).drift], [[], []])
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8'), 'by hand')
  })

  it('are not looked for behind a symlink, which is reported, replaced and kept as it was', async () => {
    const path = join(stage.root, 'plugins/greeter')
    renameSync(path, join(stage.root, 'elsewhere'))
    symlinkSync('../elsewhere', path)
    edit(stage, { 'elsewhere/more': '' })
    const result = await update('1.1.0')
    assert.match(warnings(result)[0] ?? '', /installed: plugins\/greeter \(a symlink instead of a directory\)\.$/)
    const [entry] = readLocalReport(result).drift ?? []
    assert.deepEqual([entry?.instead, entry?.added, entry?.removed], ['symlink', [], []])
    assert.ok(lstatSync(path).isDirectory())
    assert.equal(readlinkSync(join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0')), '../elsewhere')
    assert.deepEqual(
      snapshotsOf(stage).map(({ modified, tree_digest }) => [modified, tree_digest]),
      [[true, null]],
    )
    assert.ok(existsSync(join(stage.root, 'elsewhere/more')))
  })

  it('behind a symlink do not count as damage in a recovery, even if they change before it', {
    skip: ONLY_IN_CI,
  }, async () => {
    const path = join(stage.root, 'plugins/greeter')
    renameSync(path, join(stage.root, 'elsewhere'))
    symlinkSync('../elsewhere', path)
    const { outcome, drift, rollback } = await killed(() => edit(stage, { 'elsewhere/src/main.py': 'changed' }))
    assert.deepEqual([outcome, drift?.[0]?.instead, rollback?.verified], ['rolled_back', 'symlink', null])
  })

  it('are never called verified by a rollback', async () => {
    edit(stage, { 'plugins/greeter/src/main.py': 'by hand' })
    stage.writePlan(
      `${PLUGIN_PLAN.trimEnd()}\n  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/env.template, depends_on: [files]}\n`,
    )
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'env.template': 'GREETING=\n' }))
    const result = await failAfterSwitch()
    const { outcome, rollback } = readLocalReport(result)
    assert.deepEqual(
      [outcome, rollback?.restored, rollback?.verified, rollback?.problems],
      ['rolled_back', true, null, []],
    )
    assert.doesNotMatch(result.summary, /as they were installed/)
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8'), 'by hand')
  })

  async function failAfterSwitch(): Promise<ActionResult> {
    // A directory has the name of the settings file. Only the step after the switch notices that.
    writeFiles(stage.root, { 'plugins/greeter.env/x': '' })
    return await stage.deploy()
  }

  /**
   * Kills a run after the switch. Returns the report on the dead run, which the next run writes when it recovers the
   * host.
   */
  async function killed(whenDead: () => void | Promise<void> = () => {}): Promise<LocalReport> {
    const kill = { command: ['/bin/sh', '-c', 'kill -9 $PPID; sleep 1'] }
    const config = { version: 1, provision: { greeter: kill } }
    writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
    stage.writePlan(
      `${PLUGIN_PLAN.trimEnd()}\n  - {id: work, action: provision, plugin: greeter, depends_on: [files]}\n`,
    )
    await stage.publish('1.1.0', pluginFiles('1.1.0'))
    const result = await stage.deploy({ 'host-config': 'host.yaml' })
    assert.equal(result.signal, 'SIGKILL')
    stage.writePlan(PLUGIN_PLAN)
    await whenDead()
    await stage.deploy()
    const [, report] = listOwn(stage, 'reports').toSorted()
    return JSON.parse(readFileSync(join(stage.root, '.hub-deploy/reports', report ?? ''), 'utf8'))
  }

  it('are in the report of a run that was killed, and its recovery does not call them verified', {
    skip: ONLY_IN_CI,
  }, async () => {
    driftByHand()
    const { outcome, drift, rollback } = await killed()
    assert.deepEqual([outcome, drift, rollback?.verified], ['rolled_back', DRIFT, null])
  })

  it('are named by the recovery of a killed run, and do not count as damage, if they were changed after that run began', {
    skip: ONLY_IN_CI,
  }, async () => {
    const { outcome, drift, rollback } = await killed(() => edit(stage, { [`${KEPT}/src/main.py`]: 'changed' }))
    assert.deepEqual([outcome, drift, rollback?.verified], ['rolled_back', [], null])
    assert.match(rollback?.problems.join() ?? '', /^plugins\/greeter\/src\/main\.py was written by another process/)
  })

  it('count as damage in the recovery of a killed run if they were removed after that run began', {
    skip: ONLY_IN_CI,
  }, async () => {
    const { outcome, drift, rollback } = await killed(() => rmSync(join(stage.root, KEPT, 'src/main.py')))
    assert.deepEqual([outcome, drift, rollback?.verified], ['inconsistent', [], false])
  })

  it('do not include, in a dry run, the changes of an interrupted deployment', { skip: ONLY_IN_CI }, async () => {
    await killed(async () => {
      const dry = await deployed({ 'dry-run': 'true' })
      assert.match(dry.log, /is waiting for its recovery/)
      assert.deepEqual(warnings(dry), [])
      assert.doesNotMatch(dry.summary, /differ from what was installed/)
    })
  })

  it('let the recovery of a killed run call the old version verified if there are none', {
    skip: ONLY_IN_CI,
  }, async () => {
    const { outcome, drift, rollback } = await killed()
    assert.deepEqual([outcome, drift, rollback?.verified], ['rolled_back', [], true])
  })

  it('are not drift if they were only touched, or are kept paths or bytecode caches', async () => {
    const path = join(stage.root, 'plugins/greeter/src/main.py')
    utimesSync(path, new Date(0), new Date(0))
    writeFileSync(path, readFileSync(path))
    edit(stage, { 'plugins/greeter/data/rows': '1', 'plugins/greeter/src/__pycache__/main.cpython-313.pyc': 'x' })
    const result = await update('1.1.0')
    assert.deepEqual([warnings(result), readLocalReport(result).drift], [[], []])
    assert.deepEqual(
      snapshotsOf(stage).map(({ modified }) => modified),
      [undefined],
    )
  })

  it('are listed in the warning, up to 20 of them, with the number of the others', { skip: ONLY_IN_CI }, async () => {
    edit(stage, Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`plugins/greeter/x${index}`, ''])))
    const result = await update('1.1.0')
    assert.equal(warnings(result)[0]?.match(/\(added\)/g)?.length, 20)
    assert.match(warnings(result)[0] ?? '', / and 10 more\./)
    assert.match(result.summary, / and 10 more\./)
    assert.equal(readLocalReport(result).drift?.[0]?.added.length, 30)
  })

  it('cannot write workflow commands or secrets into the log', async () => {
    edit(stage, { [`plugins/greeter/::error::${stage.apiKey}`]: '' })
    const result = await update('1.1.0')
    assert.equal(commandsIn(result.log, 'error').length, 0)
    const report = readLocalReport(result)
    assert.equal(report.drift?.[0]?.added.length, 1)
    const log = result.log.split('\n').filter(line => !line.startsWith('::add-mask::'))
    for (const text of [log.join(), result.summary, JSON.stringify(report)]) assert.ok(!text.includes(stage.apiKey))
  })
})

describe('changed files of a project', () => {
  let stage: ProjectStage
  beforeEach(async () => {
    stage = await openProjectStage()
    await stage.publish('1.0.0', filesWith('1.0.0', {}))
    assert.equal((await stage.deploy()).exitCode, 0)
  })
  afterEach(() => stage.close())

  it('are reported for all its parts in one warning, including removed parts, and stay as modified', {
    skip: ONLY_IN_CI,
  }, async () => {
    edit(stage, { 'plugins/cart/by-hand': '1', 'extensions/mailer/run.sh': 'echo mine\n' })
    await stage.publish('2.0.0', filesWith('2.0.0', { included: ['cart', 'till'] }))
    const result = await stage.deploy()
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(warnings(result).length, 1)
    const drift = readLocalReport(result).drift ?? []
    assert.deepEqual(
      drift.map(({ shelf, id, version, added, changed }) => [shelf, id, version, ...added, ...changed]).toSorted(),
      [
        ['extensions', 'mailer', '1.0.0', 'run.sh'],
        ['plugins', 'cart', '1.0.0', 'by-hand'],
      ],
    )
    assert.ok(!existsSync(join(stage.root, 'extensions/mailer')))
    assert.deepEqual(
      snapshotsOf(stage).map(({ modified }) => modified),
      [true, undefined, true],
    )
    assert.ok(result.summary.includes('extensions/mailer/run.sh'))
  })
})
