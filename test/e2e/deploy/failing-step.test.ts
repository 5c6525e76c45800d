import assert from 'node:assert/strict'
import { chmodSync, existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { acceptedReports, commandsIn, listHost, listOwn, readLocalReport } from '../harness/evidence.ts'
import { assertNoSecret } from '../harness/refusal.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const ENV_PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
  - {id: last, action: configure_plugin, plugin: greeter, depends_on: [env]}
`

/**
 * A version whose settings cannot be written, because TOKEN has no value. The run finds that out only when the
 * version's files are in place.
 */
function failingFiles(version: string): Record<string, string> {
  return {
    ...pluginFiles(version, { '.env.template': 'TOKEN=\n', 'data/seed': 'shipped', 'src/new.py': '' }),
    'plugin.yaml': `name: greeter\nversion: "${version}"\nenvironment: {required: [TOKEN]}\n`,
  }
}

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  stage.writePlan(ENV_PLAN)
})
afterEach(() => stage.close())

function assertRolledBack(result: ActionResult): void {
  const { outputs } = result
  assert.deepEqual(
    [result.exitCode, outputs['outcome'], outputs['state'], outputs['error-code'], outputs['failed-step']],
    [1, 'rolled_back', 'rolled_back', 'step_failed', 'env'],
    result.log,
  )
  assert.deepEqual([outputs['changed'], outputs['reported']], ['false', 'true'])
  assert.equal(commandsIn(result.log, 'error').length, 1)
  assertNoSecret(stage, result)
  const report = readLocalReport(result)
  assert.deepEqual([report.outcome, report.status, report.error?.step], ['rolled_back', 'rolled_back', 'env'])
  assert.deepEqual([report.rollback?.restored, report.rollback?.problems], [true, []])
  assert.deepEqual(
    report.steps.map(({ id, status }) => [id, status]),
    [
      ['prepare', 'done'],
      ['files', 'done'],
      ['env', 'failed'],
      ['last', 'not_run'],
    ],
  )
  assert.deepEqual(
    report.states.map(({ state }) => state),
    [
      'pending',
      'fetching',
      'verifying_signature',
      'extracting',
      'loading_plan',
      'resolving_sequence',
      'installing',
      'rolled_back',
    ],
  )
}

describe('a step that fails after the switch', () => {
  it('leaves nothing behind on a first install', async () => {
    await stage.publish('1.0.0', failingFiles('1.0.0'))
    const result = await stage.deploy()
    assertRolledBack(result)
    assert.deepEqual(listHost(stage.root), {})
    assert.equal(readLocalReport(result).rollback?.verified, null)
  })

  it('restores every byte and mode of the old version, with the files of the host', async () => {
    await installOld()
    const before = listHost(stage.root)
    const result = await stage.deploy()
    assertRolledBack(result)
    assert.equal(existsSync(join(stage.root, 'plugins/greeter.env')), false)
    assert.deepEqual(listHost(stage.root), before)
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), [])
    // A person had added a file to the old version.
    assert.equal(readLocalReport(result).rollback?.verified, null)
    assert.match(result.summary, /^### ↩️ greeter 2\.0\.0 was rolled back/)
    const row = acceptedReports(stage).at(-1)
    assert.deepEqual([row?.version, row?.status], ['2.0.0', 'rolled_back'])
  })

  it('verifies the old version if nobody had changed it', async () => {
    await installOld()
    rmSync(join(stage.root, 'plugins/greeter/notes.txt'))
    const result = await stage.deploy()
    assert.equal(readLocalReport(result).rollback?.verified, true)
    assert.match(result.summary, /^\*\*Now:\*\* 1\.0\.0, all files as they were installed\.$/m)
  })

  it('can be repeated, and succeeds once its cause is gone', { skip: ONLY_IN_CI }, async () => {
    await installOld()
    const before = listHost(stage.root)
    assertRolledBack(await stage.deploy())
    assertRolledBack(await stage.deploy())
    assert.deepEqual(listHost(stage.root), before)
    const result = await stage.deploy({ settings: 'TOKEN=secret of the plugin' })
    assert.equal(result.exitCode, 0, result.log)
    assertNoLeakedToken(result)
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/data/rows'), 'utf8'), 'written by the plugin')
  })
})

/** Installs 1.0.0, adds the host's own settings and data, and publishes 2.0.0, whose deployment will fail. */
async function installOld(): Promise<void> {
  await stage.publish('1.0.0', pluginFiles('1.0.0', { 'src/old.py': '' }))
  stage.writePlan(PLUGIN_PLAN)
  assert.equal((await stage.deploy()).exitCode, 0)
  const place = join(stage.root, 'plugins/greeter')
  writeFiles(place, { '.env': 'MINE=1\n', 'data/rows': 'written by the plugin', 'notes.txt': 'by hand' })
  chmodSync(join(place, '.env'), 0o600)
  chmodSync(join(place, 'data'), 0o750)
  await stage.publish('2.0.0', failingFiles('2.0.0'))
  stage.writePlan(ENV_PLAN)
}

function assertNoLeakedToken({ log, outputs, summary }: ActionResult): void {
  const text = JSON.stringify([log, outputs, summary, acceptedReports(stage)])
  assert.doesNotMatch(text, /(?<!::add-mask::)secret of the plugin/)
}
