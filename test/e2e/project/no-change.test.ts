import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'
import { assertTouchesNoVersion, readLocalReport } from '../harness/evidence.ts'
import { changesOf, installedRows } from '../harness/project-evidence.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage, projectFiles } from '../harness/project-stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const PLAN = `format_version: "1"
project_id: ${PROJECT_ID}
version: "1"
steps:
  - {id: cart, action: install_plugin, plugin: cart, snapshot: true}
  - {id: till, action: install_plugin, plugin: till}
  - {id: mailer, action: install_extension, extension: mailer}
  - {id: cart-env, action: write_env, plugin: cart, from: plugins/cart/.env.template, depends_on: [cart]}
  - {id: cart-up, action: restart, plugin: cart, depends_on: [cart-env]}
  - {id: till-up, action: restart, plugin: till, depends_on: [till, cart-up]}
  - {id: all-up, action: restart, depends_on: [till-up]}
  - {id: tell, action: notify, event: deployed, depends_on: [all-up]}
`
/** The calls of a run in which every step runs. In the plan, till's restart depends on cart's. */
const ALL_CALLS = ['restart shop-cart.service', 'restart shop-till.service', 'restart shop.service', 'notify-team']

let stage: ProjectStage
let standIns: StandIns
beforeEach(async () => {
  stage = await openProjectStage()
  standIns = makeStandIns()
  const notify = standIns.add('notify-team', '')
  const check = standIns.add('check-cart', '')
  const config = `version: 1
supervisor: systemd
systemd: {unit: "shop-{id}.service", project_unit: shop.service}
plugins: {cart: {unit: shop-cart.service, healthcheck: {command: [${check}]}}}
notify: {deployed: {command: [${notify}]}}
`
  writeFileSync(join(stage.workspace.path, 'host-config.yaml'), config)
})
afterEach(async () => {
  standIns.close()
  await stage.close()
})

/** Publishes a version of the project. Only cart's files differ from version to version. */
async function publish(version: string, more: Record<string, string> = {}): Promise<void> {
  const files = {
    'plugins/till/src/main.py': 'print("till")\n',
    'plugins/cart/.env.template': 'A=1\n',
    'extensions/mailer/run.sh': 'echo mail\n',
    'deployment/install.yaml': PLAN,
  }
  await stage.publish(version, projectFiles(version, { ...files, ...more }))
}

/** Files with which cart, too, is the same in every version. */
const SAME_CART = {
  'plugins/cart/plugin.yaml': 'name: cart\nversion: "5.0.0"\n',
  'plugins/cart/src/main.py': 'print("cart")\n',
}

async function run(inputs: Record<string, string> = {}): Promise<ActionResult> {
  return await stage.deploy({ 'host-config': 'host-config.yaml', ...inputs }, { env: { PATH: standIns.path } })
}

async function succeeds(inputs: Record<string, string> = {}): Promise<ActionResult> {
  const result = await run(inputs)
  assert.deepEqual([result.exitCode, result.outputs['outcome']], [0, 'success'], result.log)
  return result
}

/** Runs a deployment that must succeed. Returns its result, its changes to services, and its commands. */
async function watched(inputs: Record<string, string> = {}): Promise<ActionResult & { calls: string[] }> {
  const before = standIns.changes().length
  const result = await succeeds(inputs)
  const calls = standIns.changes().slice(before)
  return { ...result, calls: calls.map(call => call.filter(word => word !== 'systemctl').join(' ')) }
}

function statusesOf(result: ActionResult): string {
  return readLocalReport(result)
    .steps.map(({ id, status }) => `${id} ${status}`)
    .join(', ')
}

const inodeOf = (path: string): number => statSync(join(stage.root, path)).ino
const isExtracted = ({ log }: ActionResult): boolean => !log.includes('extracting: only manifest and plan')

describe('a project that is already installed', () => {
  it('is not extracted, and no service is touched', async () => {
    await publish('1.0.0')
    await succeeds()
    await assertTouchesNoVersion(stage.root, async () => {
      const result = await watched()
      assert.deepEqual([result.calls, changesOf(result)], [[], ['false', '1.0.0', '1.0.0']])
      assert.equal(isExtracted(result), false)
      assert.equal(
        statusesOf(result),
        'cart unchanged, till unchanged, mailer unchanged, cart-env unchanged, cart-up skipped, till-up skipped, all-up skipped, tell skipped',
      )
    })
  })

  it('has only its stopped services started', async () => {
    await publish('1.0.0')
    await succeeds()
    standIns.setState('shop-till.service', 'inactive')
    assert.deepEqual((await watched()).calls, ['start shop-till.service'])
  })

  it('runs every step with redeploy', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0')
    const first = await watched()
    const again = await watched({ redeploy: 'true' })
    assert.deepEqual(again.calls, first.calls)
    assert.equal(again.outputs['changed'], 'false')
  })

  it('fails when it is unhealthy, and restarts nothing', { skip: ONLY_IN_CI }, async () => {
    const check = '  - {id: ok, action: healthcheck, plugin: cart, timeout: 3s, depends_on: [cart]}\n'
    await publish('1.0.0', { 'deployment/install.yaml': PLAN + check })
    await succeeds()
    assert.equal(standIns.environmentOf('check-cart')['DEPLOYMENT_CHANGED'], 'true')
    standIns.add('check-cart', 'exit 1')
    const before = standIns.changes().filter(([program]) => program === 'systemctl')
    const { outputs, log } = await run()
    const { outcome, changed, 'error-code': code } = outputs
    assert.deepEqual([outcome, changed, code], ['failed', 'false', 'unhealthy'], log)
    assert.equal(standIns.environmentOf('check-cart')['DEPLOYMENT_CHANGED'], 'false')
    assert.deepEqual(
      standIns.changes().filter(([program]) => program === 'systemctl'),
      before,
    )
  })

  it('is refused to a host whose credential was revoked', async () => {
    await publish('1.0.0')
    await succeeds()
    stage.store.db.prepare("UPDATE project_keys SET revoked_at = '2026-01-01' WHERE purpose = 'credential'").run()
    const { outputs, log } = await run()
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'authentication_failed'], log)
  })

  it('is reinstalled only in the part that was changed on this host', async () => {
    await publish('1.0.0')
    await succeeds()
    writeFileSync(join(stage.root, 'plugins/till/src/main.py'), 'edited')
    const before = inodeOf('plugins/cart')
    const result = await watched()
    assert.deepEqual(result.calls, ['restart shop-till.service', 'restart shop.service', 'notify-team'])
    assert.equal(readFileSync(join(stage.root, 'plugins/till/src/main.py'), 'utf8'), 'print("till")\n')
    assert.equal(inodeOf('plugins/cart'), before)
  })

  it('counts settings that are missing as a change of their part', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0')
    await succeeds()
    rmSync(join(stage.root, 'plugins/cart.env'))
    const { calls } = await watched()
    assert.deepEqual(calls, ALL_CALLS)
  })

  it('is extracted when this host has no record of one of its parts', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0')
    await succeeds()
    const path = join(stage.root, '.hub-deploy/installed.json')
    const { installed, ...rest } = JSON.parse(readFileSync(path, 'utf8'))
    const others = (installed as { id: string }[]).filter(({ id }) => id !== 'till')
    writeFileSync(path, JSON.stringify({ ...rest, installed: others }))
    const result = await watched({ 'allow-takeover': 'true' })
    assert.deepEqual([isExtracted(result), result.outputs['changed']], [true, 'true'])
    assert.deepEqual(Object.keys(installedRows(stage)), ['service mailer', 'plugin cart', 'plugin till'])
  })
})

describe('a deployment of a project', () => {
  it('restarts the service that an earlier run could not restore, and no other', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0')
    await succeeds()
    await publish('2.0.0')
    standIns.before('systemctl', 'restart', '[ "$service" != shop-cart.service ] || { begin; exit 1; }')
    assert.equal((await run()).outputs['outcome'], 'rolled_back')
    standIns.before('systemctl', 'restart', ':')
    const { calls, outputs } = await watched({ version: '1.0.0' })
    // The run that takes over also checks the service.
    assert.deepEqual([[...new Set(calls)], outputs['changed']], [['restart shop-cart.service', 'check-cart'], 'false'])
    assert.deepEqual((await watched({ version: '1.0.0' })).calls, [])
  })

  it('restarts the services that depend on a changed extension', { skip: ONLY_IN_CI }, async () => {
    const plan = PLAN.replace('[cart-env]', '[cart-env, mailer]')
    await publish('1.0.0', { ...SAME_CART, 'deployment/install.yaml': plan })
    await succeeds()
    await publish('2.0.0', { ...SAME_CART, 'deployment/install.yaml': plan, 'extensions/mailer/run.sh': 'echo NEW\n' })
    const { calls } = await watched()
    assert.deepEqual(calls, ALL_CALLS)
  })

  it('reinstalls a plugin if a file was added that the signature of the plugin should cover', {
    skip: ONLY_IN_CI,
  }, async () => {
    const signed = { 'plugins/cart/plugin.yaml': 'name: cart\nversion: "5.0.0"\nexecution_mode: trusted\n' }
    const inputs = { 'plugin-secret-key': 'secret of the host' }
    await publish('1.0.0', { ...SAME_CART, ...signed })
    await succeeds(inputs)
    const added = join(stage.root, 'plugins/cart/src/planted.py')
    writeFileSync(added, 'planted')
    assert.equal((await succeeds(inputs)).outputs['changed'], 'true')
    assert.equal(existsSync(added), false)
  })

  it('replaces only the parts that differ, and restarts their services, dependent services, and the project-wide service', {
    skip: ONLY_IN_CI,
  }, async () => {
    await publish('1.0.0')
    await succeeds()
    const kept = ['plugins/till', 'extensions/mailer']
    const before = kept.map(inodeOf)
    await publish('2.0.0')
    const result = await watched()
    assert.deepEqual(result.calls, ALL_CALLS)
    assert.deepEqual(kept.map(inodeOf), before)
    assert.match(
      statusesOf(result),
      /^cart done, till unchanged, mailer unchanged, .*till-up done, all-up done, tell done$/,
    )
    const rows = Object.values(installedRows(stage))
    assert.deepEqual(
      rows.map(row => [row.id, row.project_version, row.artifact_sha256 === result.outputs['artifact-sha256']]),
      [
        ['mailer', '2.0.0', true],
        ['cart', '2.0.0', true],
        ['till', '2.0.0', true],
      ],
    )
    assert.equal(isExtracted(await watched()), false)
  })

  it('changes only the records if all parts of a new version are already installed', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0', SAME_CART)
    await succeeds()
    await publish('2.0.0', SAME_CART)
    const result = await watched()
    assert.deepEqual([result.calls, changesOf(result)], [[], ['false', '1.0.0', '2.0.0']])
    assert.deepEqual(
      Object.values(installedRows(stage)).map(row => row.project_version),
      ['2.0.0', '2.0.0', '2.0.0'],
    )
    assert.deepEqual(changesOf(await watched()), ['false', '2.0.0', '2.0.0'])
  })

  it('runs the steps for all parts when it removes a part', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0', SAME_CART)
    await succeeds()
    const without = PLAN.split('\n').filter(line => !line.includes('mailer'))
    await stage.publish('2.0.0', {
      ...SAME_CART,
      'plugins/cart/.env.template': 'A=1\n',
      'plugins/till/plugin.yaml': 'name: till\nversion: "7.0.0"\n',
      'plugins/till/src/main.py': 'print("till")\n',
      'deployment/install.yaml': without.join('\n'),
    })
    const { calls } = await watched()
    assert.deepEqual(calls, ['restart shop.service', 'notify-team'])
  })
})
