import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionRun } from '../../../local/runner.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { openInstalled, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

const PLAN = `${PLUGIN_PLAN}  - {id: work, action: provision, plugin: greeter, depends_on: [files]}
`

let stage: Stage
beforeEach(async () => {
  stage = await openInstalled(pluginFiles('1.0.0'))
  writeFiles(stage.root, { 'plugins/greeter/data/state': 'of the host' })
  await stage.publish('2.0.0', pluginFiles('2.0.0'))
  stage.writePlan(PLAN)
})
afterEach(() => stage.close())

/** Deploys 2.0.0 with a host command that runs this script once the new files are in place. */
function deployWhile(script: string, inputs: Record<string, string> = {}, run: Partial<ActionRun> = {}) {
  const config = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', script] } } }
  writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
  return stage.deploy({ 'host-config': 'host.yaml', ...inputs }, run)
}

function assertOldVersion(): void {
  assert.match(readFileSync(join(stage.root, 'plugins/greeter/plugin.yaml'), 'utf8'), /1\.0\.0/)
  assert.equal(readFileSync(join(stage.root, 'plugins/greeter/data/state'), 'utf8'), 'of the host')
  assert.equal(existsSync(join(stage.root, '.hub-deploy/journal.jsonl')), false)
}

describe('an old version that is still running', () => {
  it('is restored even if it has re-created its kept folder, which is set aside', async () => {
    const old = join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0/data')
    const { outputs, log } = await deployWhile(`mkdir ${old} && echo mine >${old}/log; exit 1`)
    assert.deepEqual([outputs['outcome'], outputs['failed-step']], ['rolled_back', 'work'], log)
    assertOldVersion()
    const aside = join(stage.root, '.hub-deploy/snapshots/set-aside')
    assert.equal(readFileSync(join(aside, readdirSync(aside)[0] as string, 'log'), 'utf8'), 'mine\n')
    assert.match(log, /set-aside/)
  })

  it('does not fail verification because of files that it changed itself before the deployment', async () => {
    writeFiles(stage.root, { 'plugins/greeter/src/main.py': 'rewritten by the plugin itself' })
    const result = await deployWhile('exit 1')
    assert.equal(result.outputs['outcome'], 'rolled_back')
    assert.equal(readLocalReport(result).rollback?.verified, null)
  })
})

describe('what was set aside', () => {
  it('is pruned as modified snapshots are, so that a process that keeps writing does not fill the disk', async () => {
    const aside = join(stage.root, '.hub-deploy/snapshots/set-aside')
    const [old, now] = [Date.now() - 30 * 86_400_000, Date.now()]
    const names = [
      `1-${old}-a`,
      `2-${old}-staging-b`,
      `3-${now}-c`,
      `4-${old}-d`,
      `5-${now + 3_600_000}-e`,
      `6-${old}-f`,
    ]
    for (const name of names) writeFiles(aside, { [`${name}/log`]: '' })
    const { outputs, log } = await deployWhile('true', { 'keep-snapshots': '2' })
    assert.equal(outputs['outcome'], 'success', log)
    assert.deepEqual(readdirSync(aside).sort(), [names[1], names[2], names[4], names[5]])
    assert.deepEqual(readdirSync(join(stage.root, '.hub-deploy/staging')), [])
  })
})

describe('a run that is refused after another run was killed', () => {
  for (const [name, inputs] of Object.entries({
    'a plan for another slug': { slug: 'clock' },
    'a malformed input': { 'keep-snapshots': 'many' },
  })) {
    it(`recovers the host before it fails because of ${name}`, async () => {
      const killed = await deployWhile('kill -9 $PPID; sleep 1')
      assert.equal(killed.signal, 'SIGKILL')
      const { outputs, exitCode } = await stage.deploy(inputs)
      assert.deepEqual([exitCode, outputs['outcome'], outputs['changed']], [1, 'failed', 'false'])
      assertOldVersion()
    })
  }
})

it('a deployment never mistakes a settings file for a plugin', async () => {
  writeFiles(stage.root, { 'plugins/other.env': 'SECRET=1' })
  stage.writePlan(PLUGIN_PLAN.replace('plugin: greeter', 'plugin: other.env'))
  const { outputs } = await stage.deploy()
  assert.equal(outputs['error-code'], 'invalid_plan')
  assert.equal(readFileSync(join(stage.root, 'plugins/other.env'), 'utf8'), 'SECRET=1')
})
