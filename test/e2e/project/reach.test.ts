import assert from 'node:assert/strict'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'
import { listLive } from '../harness/evidence.ts'
import {
  openProjectStage,
  PROJECT_ID,
  PROJECT_PLAN,
  type ProjectStage,
  projectFiles,
} from '../harness/project-stage.ts'
import { writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: ProjectStage
let standIns: StandIns
let published = 0
beforeEach(async () => {
  stage = await openProjectStage()
  standIns = makeStandIns(join(stage.root, 'plugins/cart/src/main.py'))
  for (const unit of ['sshd.service', 'cart.service', 'shop-cart.service', 'own.service'])
    standIns.setState(unit, 'active')
})
afterEach(async () => {
  standIns.close()
  await stage.close()
})

/** Deploys a project whose plan ends with these steps, with this host config. */
async function deploy(steps: string[], hostConfig: string, inputs: Record<string, string> = {}): Promise<ActionResult> {
  const lines = steps.map((step, index) => `  - {id: s${index}, depends_on: [mailer], ${step}}\n`)
  const version = `1.0.${++published}`
  const plan = { 'deployment/install.yaml': `${PROJECT_PLAN}${lines.join('')}` }
  await stage.publish(version, projectFiles(version, plan))
  writeFileSync(join(stage.workspace.path, 'host-config.yaml'), `version: 1\n${hostConfig}`)
  return await stage.deploy({ 'host-config': 'host-config.yaml', ...inputs }, { env: { PATH: standIns.path } })
}

function assertRefused({ outputs, log }: ActionResult, code: string): void {
  assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', code], log)
  assert.deepEqual(standIns.changes(), [])
  assert.equal(existsSync(join(stage.root, 'plugins')), false)
}

function assertDeployed({ exitCode, log }: ActionResult): void {
  assert.equal(exitCode, 0, log)
}

describe('a project whose publisher names a service by its id alone', () => {
  const bare = {
    'the default of systemd': 'supervisor: systemd\n',
    'systemd without a suffix': 'supervisor: systemd\nsystemd: {unit: "{id}"}\n',
    'another suffix of systemd': 'supervisor: systemd\nsystemd: {unit: "{id}.socket"}\n',
    'the default of docker': 'supervisor: docker\n',
    'a row for another id': 'supervisor: systemd\nplugins: {till: {unit: own.service}}\n',
  }
  for (const [name, hostConfig] of sampled(Object.entries(bare), 1)) {
    it(`is refused under ${name}`, async () => {
      assertRefused(await deploy(['action: stop, plugin: cart'], hostConfig), 'invalid_host_config')
    })
  }

  for (const step of sampled(['start, plugin: cart', 'restart', 'healthcheck, plugin: cart, timeout: 5'], 1)) {
    it(`is refused when a step would ${step.split(',')[0]}`, async () => {
      assertRefused(await deploy([`action: ${step}`], 'supervisor: systemd\n'), 'invalid_host_config')
    })
  }

  it('is accepted when no step uses the name, and when the step is skipped', async () => {
    assertDeployed(await deploy([], 'supervisor: systemd\n'))
    assertDeployed(await deploy(['action: restart'], 'supervisor: none\n'))
    assert.deepEqual(standIns.changes(), [])
  })

  const granted = {
    'a template with a prefix': ['systemd: {unit: "shop-{id}.service"}\n', 'shop-cart.service'],
    'a row for the id': ['plugins: {cart: {unit: own.service}}\n', 'own.service'],
    'the unit of the project': ['systemd: {project_unit: own.service}\n', 'own.service'],
  }
  for (const [name, [hostConfig, unit]] of sampled(Object.entries(granted), 1)) {
    it(`is accepted with ${name}`, async () => {
      const step = unit === 'own.service' && name.includes('project') ? 'restart' : 'restart, plugin: cart'
      assertDeployed(await deploy([`action: ${step}`], `supervisor: systemd\n${hostConfig}`))
      assert.deepEqual(standIns.changes(), [['systemctl', 'restart', unit]])
    })
  }
})

describe('a project whose ids are those of others', () => {
  const PREFIXED = 'supervisor: systemd\nsystemd: {unit: "shop-{id}.service"}\n'

  for (const path of sampled(['plugins/cart', 'extensions/cart'], 1)) {
    it(`does not take over ${path} of unknown origin, or its data`, async () => {
      writeFiles(stage.root, { [`${path}/data/orders`]: 'all of them' })
      const before = listLive(stage.root)
      const { outputs, log } = await deploy([], PREFIXED)
      assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'place_taken'], log)
      assert.deepEqual(listLive(stage.root), before)
      assertDeployed(await deploy([], PREFIXED, { 'allow-takeover': 'true' }))
    })
  }

  it('does not stop a service for a part that its manifest lists and its plan does not install', async () => {
    writeFiles(stage.root, { 'plugins/cart/plugin.yaml': 'name: cart\n' })
    const plan = `format_version: "1"\nproject_id: ${PROJECT_ID}\nversion: "1"\nsteps:
  - {id: till, action: install_plugin, plugin: till}
  - {id: stop, action: stop, plugin: cart}\n`
    await stage.publish('1.0.0', projectFiles('1.0.0', { 'deployment/install.yaml': plan }))
    writeFileSync(join(stage.workspace.path, 'host-config.yaml'), `version: 1\n${PREFIXED}`)
    const run = { env: { PATH: standIns.path } }
    const { outputs, log } = await stage.deploy({ 'host-config': 'host-config.yaml' }, run)
    assert.deepEqual([outputs['error-code'], standIns.changes()], ['place_taken', []], log)
  })
})

describe('the input project-ids', () => {
  it('refuses every other id that the manifest lists, before anything is installed', async () => {
    for (const ids of ['cart,till', 'mailer\ntill', 'shop'])
      assertRefused(await deploy([], '', { 'project-ids': ids }), 'unexpected_part')
  })

  it('accepts ids separated by commas or one per line', { skip: ONLY_IN_CI }, async () => {
    assertDeployed(await deploy([], '', { 'project-ids': 'cart, till\nmailer\nnot-there' }))
  })

  it('refuses text that is not an id', async () => {
    for (const ids of ['../cart', ',', 'Cart'])
      assertRefused(await deploy([], '', { 'project-ids': ids }), 'invalid_input')
  })
})
