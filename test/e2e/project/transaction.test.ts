import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { whyLeftToCi } from '../../extent.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'
import { assertNothingStrays, assertReported, commandsIn, listHost, readLocalReport } from '../harness/evidence.ts'
import { standIn } from '../harness/processes.ts'
import { acceptedProjectReports, runningParts } from '../harness/project-evidence.ts'
import { openProjectStage, PROJECT_PLAN, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import { tamper, whyNoStrace } from '../harness/strace.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: ProjectStage
let standIns: StandIns
let versions = 0
before(async () => {
  stage = await openProjectStage()
  standIns = makeStandIns(join(stage.root, 'plugins/cart/src/main.py'))
  standIns.add('make-db', 'echo "no database" >&2; exit 4')
  standIns.add('check', 'grep -q "cart 1.0.0" running')
  for (const unit of UNITS) standIns.setState(unit, 'active')
  writeFileSync(join(stage.workspace.path, 'host-config.yaml'), hostConfig())
  await stage.publish('1.0.0', projectFiles('1.0.0'))
  const { exitCode, log } = await stage.deploy()
  assert.equal(exitCode, 0, log)
})
after(async () => {
  standIns.close()
  await stage.close()
})

const UNITS = ['cart.service', 'till.service', 'app.service']

function hostConfig(): string {
  return `version: 1
supervisor: systemd
systemd: {project_unit: app.service}
plugins: {cart: {healthcheck: {command: [${standIns.bin}/check]}}, till: {unit: till.service}}
provision: {cart: {command: [${standIns.bin}/make-db], timeout: 60s}}
`
}

const TEMPLATES = {
  'plugins/cart/.env.template': 'COLOUR=blue\n',
  'plugins/till/.env.template': 'TOKEN=\n',
  'plugins/till/plugin.yaml': 'name: till\nversion: "7.0.0"\nenvironment: {required: [TOKEN]}\n',
}
const envOf = (id: string): string => `action: write_env, plugin: ${id}, from: plugins/${id}/.env.template`

/** Publishes a newer version whose plan ends with these steps, s1, s2, ..., and deploys that version. */
async function update(steps: readonly string[], run: Partial<ActionRun> = {}): Promise<ActionResult> {
  const version = `2.0.${++versions}`
  const lines = steps.map(
    (step, index) => `  - {id: s${index + 1}, depends_on: [${index === 0 ? 'mailer' : `s${index}`}], ${step}}\n`,
  )
  await stage.publish(
    version,
    projectFiles(version, { ...TEMPLATES, 'deployment/install.yaml': PROJECT_PLAN + lines.join('') }),
  )
  const env = { PATH: standIns.path, ...run.env }
  return stage.deploy({ 'host-config': 'host-config.yaml', version }, { ...run, env })
}

interface Undone {
  code: ErrorCode
  step?: string
}

/**
 * Runs an update that must fail. Asserts that it leaves all parts as they were, and that the outputs, the local report
 * and the hub's report say that the update was rolled back.
 */
async function assertRolledBack(act: () => Promise<ActionResult>, { code, step }: Undone): Promise<void> {
  const before = listHost(stage.root)
  const result = await act()
  const { outputs } = result
  assert.deepEqual([outputs['outcome'], outputs['error-code']], ['rolled_back', code], result.log)
  assert.equal(outputs['changed'], 'false')
  if (step !== undefined) assert.equal(outputs['failed-step'], step)
  assert.deepEqual(listHost(stage.root), before)
  assert.deepEqual(runningParts(stage), ['1.0.0', '1.0.0', '1.0.0'])
  assertReported(stage.root, result)
  assertNothingStrays(stage.root)
  assert.equal(readLocalReport(result).rollback?.restored, true)
  assert.equal(commandsIn(result.log, 'error').length, 1)
  const row = acceptedProjectReports(stage).find(({ deployment_id }) => deployment_id === outputs['deployment-id'])
  assert.equal(row?.status, 'rolled_back')
}

/** A PATH whose `sync` removes the staged tree of the last part. A run calls `sync` once for all trees. */
function losingTheLastPart(t: TestContext): Partial<ActionRun> {
  const path = standIn(t, 'sync', 'rm -r "$2"/../../extensions/mailer')
  return { env: { PATH: [path.split(delimiter)[0], standIns.path].join(delimiter) } }
}

describe('a project of three parts is rolled back as one', () => {
  it('when a command that follows the last part fails', () =>
    assertRolledBack(() => update(['action: provision, plugin: cart']), { code: 'step_failed', step: 's1' }))

  it('when it is unhealthy, and every restarted service runs the old version again', { skip: ONLY_IN_CI }, async () => {
    const calls = standIns.changes().length
    const act = () =>
      update(['action: restart, plugin: cart', 'action: restart', 'action: healthcheck, plugin: cart, timeout: 1'])
    await assertRolledBack(act, { code: 'unhealthy', step: 's3' })
    assert.match(standIns.running() ?? '', /cart 1\.0\.0/)
    const changed = standIns
      .changes()
      .slice(calls)
      .filter(([program]) => program === 'systemctl')
    assert.deepEqual(
      changed.map(call => call.slice(1).join(' ')),
      ['restart cart.service', 'restart app.service', 'restart app.service', 'restart cart.service'],
    )
  })

  it('when a service was stopped, and that service then runs again', async () => {
    const act = () => update(['action: stop, plugin: till', 'action: provision, plugin: cart'])
    await assertRolledBack(act, { code: 'step_failed', step: 's2' })
    assert.equal(standIns.stateOf('till.service'), 'active')
  })

  it('with the settings file that one step made, when another step lacks a value', { skip: ONLY_IN_CI }, async () => {
    await assertRolledBack(() => update([envOf('cart'), envOf('till')]), { code: 'step_failed', step: 's2' })
    assert.ok(!existsSync(join(stage.root, 'plugins/cart.env')))
  })

  it('when the new tree of the last part disappears', t =>
    assertRolledBack(() => update([], losingTheLastPart(t)), { code: 'step_failed', step: 'mailer' }))

  it('when it is cancelled as the last part is moved', { skip: whyNoStrace() }, () => {
    const run = tamper(join(stage.root, 'extensions/mailer'), 'rename', 'signal=INT', '5')
    return assertRolledBack(() => update([], run), { code: 'cancelled' })
  })

  it('when the directory of the last part cannot be moved', { skip: whyNoStrace() }, () => {
    const run = tamper(join(stage.root, 'extensions/mailer'), 'rename', 'error=EPERM', '5')
    return assertRolledBack(() => update([], run), { code: 'host_not_writable', step: 'mailer' })
  })
})

describe('a project whose last part cannot be installed anywhere', () => {
  it('is refused before anything is installed', async () => {
    const root = join(stage.folder, 'odd-host')
    mkdirSync(root)
    writeFileSync(join(root, 'extensions'), 'in the way')
    const { outputs, log } = await stage.deploy({ 'project-root': root, version: '1.0.0' })
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'host_not_writable'], log)
    assert.deepEqual(listHost(root), { extensions: '644 in the way' })
  })
})
