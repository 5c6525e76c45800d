import assert from 'node:assert/strict'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { after, before, describe, it } from 'node:test'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { whyRightsAreLeftToCi } from '../../extent.ts'
import { type Booted, boot, withMachines } from '../harness/booted-host.ts'
import { listOwn } from '../harness/evidence.ts'
import { assertSucceeds } from '../harness/prepared-host.ts'
import { openSafeFolder, RECOVER, writeSafeHostConfig } from '../harness/processes.ts'
import { healthcheck, openStage, PLUGIN_PLAN, planWith, RESTART, type Stage, versionFiles } from '../harness/stage.ts'

const UNIT = readFileSync(resolve(import.meta.dirname, '../../../examples/systemd/hub-deploy-recover.service'), 'utf8')

let stage: Stage
let at: (name: string) => string
before(async () => {
  stage = await openStage()
  at = name => join(stage.folder, name)
  await stage.publish('1.0.0', versionFiles('1.0.0'))
  await stage.publish('2.0.0', versionFiles('2.0.0'))
  stage.writePlan(PLUGIN_PLAN)
  assertSucceeds(await stage.deploy({ version: '1.0.0' }))
  writeFileSync(at('check'), CHECK, { mode: 0o755 })
})
after(() => stage.close())

/**
 * A health check that works in its own folder. For the new version, the check writes `yes` to the file `checking` and
 * sleeps. For the old version, the check passes.
 */
const CHECK = `#!/bin/sh
cd "$(dirname "$0")"
case $(tail -n 1 served) in
  2.0.0) echo yes > checking; exec sleep 600 ;;
  1.0.0) echo fine ;;
  *) exit 1 ;;
esac
`

const write = (name: string, text: string): void => writeFileSync(at(name), text)

/**
 * Writes its environment and the command in its arguments to a file, and does not run the command. A shell would drop
 * variables whose names contain hyphens.
 */
const NOTE_JOB = `
const [file, ...command] = process.argv.slice(1)
const variables = Object.entries(process.env).map(([name, value]) => name + '=' + value)
require('node:fs').writeFileSync(file, [...variables, ...command].join('\\0'))
`

/** A service. At each start, it appends the version that it runs to a file. */
const serviceUnit = () => `[Service]
ExecStart=/bin/sh -c 'cat ${stage.root}/plugins/greeter/src/main.py >> ${at('served')}; echo >> ${at('served')}; exec sleep 600'
[Install]
WantedBy=multi-user.target
`

const safe = openSafeFolder()
const hostConfig = () =>
  `version: 1\nsupervisor: systemd\nplugins: {greeter: {healthcheck: {command: [${at('check')}]}}}\n`

/** The example unit, adapted to this host. */
const recoverUnit = () =>
  UNIT.replaceAll('/srv/app', stage.root)
    .replace('/opt/hub-deploy/node', process.execPath)
    .replace('/opt/hub-deploy/recover.js', RECOVER)
    .replace('/etc/hub-deploy/host-config.yaml', writeSafeHostConfig(safe, hostConfig()))
    .replace('User=runner', `StandardOutput=append:${at('recovery')}\nStandardError=append:${at('recovery')}`)
    .replace('--lock-timeout-seconds 5', '--lock-timeout-seconds 1')

const script = (command: string) => `[Service]
ExecStart=/bin/sh -c '${command}'
[Install]
WantedBy=multi-user.target
`

/**
 * Deploys 2.0.0 on a machine where the service runs, and cuts the power during the deployment's health check. The
 * recovery unit is enabled just before the deployment, so that the restart of the service starts the recovery in the
 * middle of the deployment.
 */
async function cutPowerInHealthCheck(): Promise<void> {
  for (const name of ['served', 'checking', 'recovery']) write(name, '')
  stage.writePlan(planWith(RESTART, healthcheck({ timeout: 60 })))
  writeFileSync(join(stage.workspace.path, 'host-config.yaml'), hostConfig())
  await stage.deploy({ 'host-config': 'host-config.yaml' }, { through: [process.execPath, '-e', NOTE_JOB, at('job')] })
  const started = `until systemctl is-active --quiet greeter.service; do sleep 0.1; done`
  const enabled = 'systemctl enable --quiet hub-deploy-recover.service'
  const machine = boot({
    folder: stage.folder,
    units: {
      'greeter.service': serviceUnit(),
      'hub-deploy-recover.service': recoverUnit(),
      'job.service': script(
        `${started}; ${enabled}; cd ${stage.workspace.path}; exec xargs -0 -a ${at('job')} env -i > ${at('log')} 2>&1`,
      ),
    },
    enable: ['greeter.service', 'job.service'],
  })
  try {
    await machine.read('checking')
  } finally {
    await machine.cutPower()
  }
  assert.deepEqual([served(), installed()], [['1.0.0', '2.0.0'], '2.0.0'])
}

/**
 * Boots with this recovery unit. Resolves to the states of the recovery and of the service once the recovery has ended
 * and no job is pending.
 */
async function bootAgain(unit = recoverUnit()): Promise<string[]> {
  for (const name of ['served', 'recovery']) write(name, '')
  rmSync(at('states'), { force: true })
  const show = 'systemctl show --property=SubState --value'
  const over = `${show} hub-deploy-recover.service | grep -qE "exited|failed" && systemctl list-jobs | grep -q "^No jobs"`
  const states = `for unit in hub-deploy-recover greeter; do ${show} $unit.service; done > ${at('states.new')}`
  const machine: Booted = boot({
    folder: stage.folder,
    units: {
      'greeter.service': serviceUnit(),
      'hub-deploy-recover.service': unit,
      'observer.service': script(
        `until ${over}; do sleep 0.1; done; ${states}; mv ${at('states.new')} ${at('states')}`,
      ),
    },
    enable: ['greeter.service', 'hub-deploy-recover.service', 'observer.service'],
  })
  try {
    return (await machine.read('states')).trim().split('\n')
  } finally {
    await machine.cutPower()
  }
}

const linesOf = (name: string) =>
  readFileSync(at(name), 'utf8')
    .split('\n')
    .filter(line => line !== '')
const served = () => linesOf('served')
const installed = () => readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8')

function lastReport(): LocalReport {
  const reports = listOwn(stage, 'reports').map(
    (name): LocalReport => JSON.parse(readFileSync(join(stage.root, '.hub-deploy/reports', name), 'utf8')),
  )
  return reports.find(({ version, outcome }) => version === '2.0.0' && outcome === 'rolled_back') as LocalReport
}

describe('a machine that lost power during the health check of a deployment', { skip: whyRightsAreLeftToCi() }, () => {
  it('serves only the old version after the next boot, and the recovery has checked that version', async t => {
    await withMachines(t, async () => {
      await cutPowerInHealthCheck()
      const states = await bootAgain()
      assert.deepEqual(states, ['exited', 'running'], linesOf('recovery').join('\n'))
      assert.deepEqual([...new Set(served())], ['1.0.0'])
      assert.equal(installed(), '1.0.0')
      assert.match(linesOf('recovery').join('\n'), /greeter is healthy again/)
      assert.equal(lastReport().rollback?.healthy, true)
    })
  })

  it('boots as usual when there is nothing to recover', async t => {
    await withMachines(t, async () => {
      assert.deepEqual(await bootAgain(), ['exited', 'running'])
      assert.deepEqual([served(), linesOf('recovery')], [['1.0.0'], [`Nothing to recover in ${stage.root}.`]])
    })
  })

  it('does not wait forever in a oneshot unit that the service waits for', async t => {
    await withMachines(t, async () => {
      await cutPowerInHealthCheck()
      const states = await bootAgain(recoverUnit().replace('Type=notify', 'Type=oneshot'))
      assert.deepEqual(states, ['exited', 'running'], linesOf('recovery').join('\n'))
      assert.deepEqual([served(), installed()], [['1.0.0'], '1.0.0'])
    })
  })

  it('does not start the service when the host cannot be recovered', async t => {
    await withMachines(t, async () => {
      await cutPowerInHealthCheck()
      const journal = join(stage.root, '.hub-deploy/journal.jsonl')
      writeFileSync(journal, readFileSync(journal, 'utf8').replace('"change"', '"chance"'))
      assert.deepEqual(await bootAgain(), ['failed', 'dead'])
      assert.deepEqual(served(), [])
      assert.match(linesOf('recovery').join('\n'), /Error: The journal .* is damaged/)
    })
  })
})
