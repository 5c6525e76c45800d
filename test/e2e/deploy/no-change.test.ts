import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { assertTouchesNoVersion, readLocalReport } from '../harness/evidence.ts'
import { installedRows } from '../harness/project-evidence.ts'
import {
  type HostStage,
  openHostStage,
  PLUGIN_PLAN,
  planWith,
  pluginFiles,
  preparedOnce,
  SERVICE_PLAN,
  versionFiles,
} from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: HostStage
beforeEach(async () => {
  stage = await openHostStage()
  stage.writeHostConfig('version: 1\nsupervisor: systemd\n')
})
afterEach(() => stage.close())

const UNIT = 'greeter.service'
/**
 * A plan that stops the service before the installation, as is necessary if the service's open files cannot be
 * replaced.
 */
const PLAN = `format_version: "1"
project_id: greeter
version: "1"
steps:
  - {id: down, action: stop, plugin: greeter}
  - {id: files, action: install_plugin, plugin: greeter, snapshot: true, depends_on: [down]}
  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
  - {id: db, action: provision, plugin: greeter, depends_on: [env]}
  - {id: up, action: restart, plugin: greeter, depends_on: [db]}
  - {id: tell, action: notify, event: deployed, depends_on: [up]}
`
const ALL_STEPS = [['systemctl', 'stop', UNIT], ['make-db', 'greeter'], ['systemctl', 'restart', UNIT], ['notify-team']]

function planWithCheck(timeout: string): string {
  return `${PLAN}  - {id: ok, action: healthcheck, plugin: greeter, timeout: ${timeout}, depends_on: [tell]}\n`
}

/** Installs 1.0.0 with `PLAN`. */
async function install(): Promise<void> {
  await stage.publish('1.0.0', versionFiles('1.0.0'))
  configure()
  assert.equal((await succeeds()).outputs['changed'], 'true')
}

/** Continues on a host on which `install` has run and the service is active. */
async function beginInstalled(): Promise<void> {
  await stage.close()
  const origin = await preparedOnce('installed by every kind of step', async () => {
    stage = await openHostStage()
    await install()
    return stage
  })
  stage = await openHostStage(origin)
  configure()
  stage.standIns.setState(UNIT, 'active')
}

function configure(): void {
  const command = (name: string): string => `[${stage.standIns.add(name, '')}]`
  stage.writeHostConfig(`version: 1
supervisor: systemd
plugins: {greeter: {healthcheck: {command: ${command('check-greeter')}, interval: 60s}}}
provision: {greeter: {command: ${command('make-db')}}}
notify: {deployed: {command: ${command('notify-team')}}}
`)
  stage.writePlan(PLAN)
}

async function succeeds(inputs: Record<string, string> = {}): Promise<ActionResult> {
  const result = await stage.deployHere(inputs)
  assert.deepEqual([result.exitCode, result.outputs['outcome']], [0, 'success'], result.log)
  return result
}

/**
 * The service changes and the commands of a run, in order. Successive equal calls, such as repeated health checks,
 * count once.
 */
async function callsOf(run: () => Promise<unknown>): Promise<string[][]> {
  const before = stage.standIns.changes().length
  await run()
  const calls = stage.standIns.changes().slice(before)
  return calls.filter((call, index) => call.join() !== calls[index - 1]?.join())
}

function statusesOf(result: ActionResult): string {
  return readLocalReport(result)
    .steps.map(({ id, status }) => `${id} ${status}`)
    .join(', ')
}

const isExtracted = ({ log }: ActionResult): boolean => !log.includes('not extracted')

describe('a version that is already installed', () => {
  it('restarts, stops, provisions and notifies nothing, and says so in one line', { skip: ONLY_IN_CI }, async () => {
    await beginInstalled()
    stage.writePlan(planWithCheck('60s'))
    await assertTouchesNoVersion(stage.root, async () => {
      let result: ActionResult | undefined
      const calls = await callsOf(async () => {
        result = await succeeds()
      })
      assert.deepEqual(calls, [['check-greeter']])
      assert.ok(result)
      assert.equal(result.outputs['changed'], 'false')
      assert.equal(
        statusesOf(result),
        'down skipped, files unchanged, env unchanged, db skipped, up skipped, tell skipped, ok done',
      )
      const lines = result.log.split('\n').filter(line => line.includes('skipped'))
      assert.equal(lines.length, 1)
      assert.match(lines.join(), /down \(stop\), db \(provision\), up \(restart\), tell \(notify\).*redeploy: true/)
      assert.match(result.summary, /down.* \(stop\), .*db.* \(provision\), .*up.* \(restart\), .*tell.* were skipped: /)
    })
  })

  it('is not extracted', async () => {
    await beginInstalled()
    const result = await succeeds()
    assert.equal(isExtracted(result), false)
    assert.deepEqual(
      readLocalReport(result).states.map(({ state }) => state),
      [
        ...['pending', 'fetching', 'verifying_signature', 'extracting', 'loading_plan', 'resolving_sequence'],
        ...['installing', 'healthchecking', 'succeeded'],
      ],
    )
  })

  it('passes to the commands of the host whether anything has changed so far', { skip: ONLY_IN_CI }, async () => {
    await install()
    const seen = (name: string) => stage.standIns.environmentOf(name)['DEPLOYMENT_CHANGED']
    assert.deepEqual(['make-db', 'notify-team'].map(seen), ['true', 'true'])
    await stage.publish('2.0.0', versionFiles('2.0.0'))
    stage.writePlan(planWithCheck('5s'))
    await succeeds()
    assert.equal(seen('check-greeter'), 'true')
    await succeeds({ redeploy: 'true' })
    assert.deepEqual(['make-db', 'check-greeter', 'notify-team'].map(seen), ['false', 'false', 'false'])
  })

  it('has its service started if the service is not running', async () => {
    await beginInstalled()
    stage.standIns.setState(UNIT, 'inactive')
    let result: ActionResult | undefined
    const calls = await callsOf(async () => {
      result = await succeeds()
    })
    assert.deepEqual(calls, [['systemctl', 'start', UNIT]])
    assert.ok(result)
    assert.equal(result.outputs['changed'], 'false')
    assert.match(statusesOf(result), /down skipped, .* up done/)
    assert.match(
      result.summary,
      /^### ✅ greeter 1\.0\.0 is already on host-1; up started services that were not running this version\n/,
    )
    assert.match(result.log, /were skipped: down \(stop\), db \(provision\), tell \(notify\)\./)
  })

  it('has the service of a start step started only if it does not run', { skip: ONLY_IN_CI }, async () => {
    await stage.publish('1.0.0', versionFiles('1.0.0'))
    stage.writePlan(planWith('action: start, plugin: greeter'))
    await succeeds()
    assert.deepEqual(await callsOf(succeeds), [])
    stage.standIns.setState(UNIT, 'inactive')
    assert.deepEqual(await callsOf(succeeds), [['systemctl', 'start', UNIT]])
  })

  it('runs every step with redeploy', async () => {
    await beginInstalled()
    let result: ActionResult | undefined
    const calls = await callsOf(async () => {
      result = await succeeds({ redeploy: 'true' })
    })
    assert.deepEqual(calls, ALL_STEPS)
    assert.equal(result?.outputs['changed'], 'false')
    assert.match(result?.summary ?? '', /^### ✅ greeter 1\.0\.0 is already on host-1; its steps were run again\n/)
  })

  it('runs every step, including earlier ones, when write_env creates the settings', { skip: ONLY_IN_CI }, async () => {
    await beginInstalled()
    rmSync(join(stage.root, 'plugins/greeter.env'))
    let result: ActionResult | undefined
    const calls = await callsOf(async () => {
      result = await succeeds()
    })
    assert.deepEqual(calls, ALL_STEPS)
    assert.equal(result?.outputs['changed'], 'true')
    assert.equal(stage.standIns.environmentOf('make-db')['DEPLOYMENT_CHANGED'], 'true')
  })

  it('is reinstalled with every step when one of its files was changed on this host', async () => {
    await beginInstalled()
    writeFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'edited')
    let result: ActionResult | undefined
    const calls = await callsOf(async () => {
      result = await succeeds()
    })
    assert.deepEqual(calls, ALL_STEPS)
    assert.equal(result?.outputs['changed'], 'true')
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8'), '1.0.0')
  })

  it('fails when it is unhealthy, and restarts nothing', async () => {
    await beginInstalled()
    stage.standIns.add('check-greeter', 'exit 1')
    stage.writePlan(planWithCheck('1s'))
    const calls = await callsOf(async () => {
      const { exitCode, outputs, log } = await stage.deployHere()
      const { outcome, changed, 'error-code': code } = outputs
      assert.deepEqual([exitCode, outcome, changed, code], [1, 'failed', 'false', 'unhealthy'], log)
    })
    assert.deepEqual(calls, [['check-greeter']])
  })

  it('fails when a service that it has started is unhealthy, and stops that service again', {
    skip: ONLY_IN_CI,
  }, async () => {
    await beginInstalled()
    stage.standIns.add('check-greeter', 'exit 1')
    stage.standIns.setState(UNIT, 'inactive')
    stage.writePlan(planWithCheck('1s'))
    const { outputs, log } = await stage.deployHere()
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'unhealthy'], log)
    assert.equal(stage.standIns.stateOf(UNIT), 'inactive')
  })

  it('does not claim to skip a step whose service does not start, nor a step that was not reached', {
    skip: ONLY_IN_CI,
  }, async () => {
    await beginInstalled()
    stage.standIns.setState(UNIT, 'inactive')
    stage.standIns.before('systemctl', 'start', 'exit 3')
    const { outputs, log, summary } = await stage.deployHere()
    assert.deepEqual([outputs['outcome'], outputs['failed-step']], ['failed', 'up'], log)
    assert.match(log, /were skipped: down \(stop\), db \(provision\)\. With/)
    assert.match(summary, /<code>down<\/code> \(stop\), <code>db<\/code> \(provision\) were skipped/)
  })

  it('lists in a dry run the steps that it would skip', { skip: ONLY_IN_CI }, async () => {
    await beginInstalled()
    const calls = await callsOf(async () => {
      const { log, summary } = await succeeds({ 'dry-run': 'true' })
      assert.match(
        summary,
        /down<\/code> \(stop\), .* would be skipped: .*\. A service that is not running would be started\./,
      )
      assert.match(log, /skipped: down \(stop\), db \(provision\), up \(restart\), tell \(notify\)/)
      assert.match(log, /would change no file/)
    })
    assert.deepEqual(calls, [])
  })
})

describe('a version that is already installed, but would now be installed differently,', () => {
  const seeded = pluginFiles('1.0.0', { 'data/seed': 'rows', 'extra/file': 'x' })

  it('keeps what keep-paths no longer names, and gets the files of the artifact once that is removed', async () => {
    await stage.publish('1.0.0', seeded)
    stage.writePlan(PLUGIN_PLAN)
    await succeeds()
    writeFileSync(join(stage.root, 'plugins/greeter/data/seed'), 'of the host')
    assert.equal((await succeeds({ 'keep-paths': '.env' })).outputs['changed'], 'false')
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/data/seed'), 'utf8'), 'of the host')
    rmSync(join(stage.root, 'plugins/greeter/data'), { recursive: true })
    const result = await succeeds({ 'keep-paths': '.env' })
    assert.deepEqual([result.outputs['changed'], isExtracted(result)], ['true', true])
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/data/seed'), 'utf8'), 'rows')
    assert.equal((await succeeds({ 'keep-paths': '.env' })).outputs['changed'], 'false')
  })

  it('is extracted once when a change of keep-paths has no effect', { skip: ONLY_IN_CI }, async () => {
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    stage.writePlan(PLUGIN_PLAN)
    await succeeds()
    const keepPaths = { 'keep-paths': 'cache' }
    const results = [await succeeds(keepPaths), await succeeds(keepPaths)]
    assert.deepEqual(
      results.map(result => [result.outputs['changed'], isExtracted(result)]),
      [
        ['false', true],
        ['false', false],
      ],
    )
  })

  it('is reinstalled when it has to be signed with another key', { skip: ONLY_IN_CI }, async () => {
    const yaml = 'name: greeter\nversion: "1.0.0"\nexecution_mode: trusted\n'
    await stage.publish('1.0.0', pluginFiles('1.0.0', { 'plugin.yaml': yaml }))
    stage.writePlan(PLUGIN_PLAN)
    const changes: unknown[] = []
    for (const key of ['first key', 'first key', 'second key', 'second key', '', '']) {
      const result = await succeeds(key === '' ? {} : { 'plugin-secret-key': key })
      changes.push([result.outputs['changed'], isExtracted(result)])
    }
    const [installed, left] = [
      ['true', true],
      ['false', false],
    ]
    assert.deepEqual(changes, [installed, left, installed, left, installed, left])
  })

  it('is reinstalled when the hub serves the same bytes under another version', { skip: ONLY_IN_CI }, async () => {
    stage.writePlan(SERVICE_PLAN)
    const service = { kind: 'service', slug: 'clock' } as const
    const files = { 'run.sh': 'echo tick\n' }
    await stage.publish('1.0.0', files, service)
    await succeeds(service)
    await stage.publish('1.1.0', files, service)
    const result = await succeeds(service)
    assert.deepEqual([result.outputs['changed'], result.outputs['version']], ['true', '1.1.0'])
    assert.equal(installedRows(stage)['service clock']?.version, '1.1.0')
  })

  it('is reinstalled when the record of its files is damaged', { skip: ONLY_IN_CI }, async () => {
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    stage.writePlan(PLUGIN_PLAN)
    await succeeds()
    const trees = join(stage.root, '.hub-deploy/trees')
    for (const name of readdirSync(trees)) writeFileSync(join(trees, name), 'damaged')
    const results = [await succeeds(), await succeeds()]
    assert.deepEqual(
      results.map(result => [result.outputs['changed'], isExtracted(result)]),
      [
        ['true', true],
        ['false', false],
      ],
    )
    assert.equal(results[0]?.log.match(/is not a record of installed files/g)?.length, 1)
  })
})
