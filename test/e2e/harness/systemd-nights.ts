import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionResult } from '../../../local/runner.ts'
import type { LocalStage } from '../../../local/stage.ts'
import { openProjectStage, PROJECT_PLAN, projectFiles } from './project-stage.ts'
import { openStage, planWith, pluginFiles } from './stage.ts'

/**
 * A program that runs next to a real user manager, which knows app-greeter.service, app-cart.service and shop.service.
 * It deploys the same version five times under each contract, as a nightly job would, and prints the effects on the
 * services as one line of JSON.
 */
type Deploy = (inputs?: Record<string, string>) => Promise<ActionResult>

const ENV = Object.fromEntries(['XDG_RUNTIME_DIR', 'XDG_CONFIG_HOME'].map(name => [name, process.env[name]]))
const HOST_CONFIG =
  'version: 1\nsupervisor: systemd\nsystemd: {scope: user, unit: "app-{id}.service", project_unit: shop.service}\n'

/** The state of each unit, with the id and the start time of its current run. */
function runsOf(units: readonly string[]): string {
  const show = ['--user', 'show', '--property=Id,ActiveState,InvocationID,ActiveEnterTimestampMonotonic']
  return execFileSync('systemctl', [...show, ...units], { encoding: 'utf8' })
}

/** The starts and stops that the units have recorded. */
const eventsSoFar = (): string[] =>
  readFileSync(join(process.env['XDG_RUNTIME_DIR'] ?? '', 'events'), 'utf8')
    .trim()
    .split('\n')

async function watch(units: readonly [string, ...string[]], deploy: Deploy) {
  const changed: (string | undefined)[] = []
  const night = async (inputs?: Record<string, string>): Promise<void> => {
    const { exitCode, outputs, log } = await deploy(inputs)
    if (exitCode !== 0) throw new Error(log)
    changed.push(outputs['changed'])
  }
  await night()
  const before = { runs: runsOf(units), events: eventsSoFar().length }
  await night()
  await night()
  const isSameRun = runsOf(units) === before.runs
  const whileUnchanged = eventsSoFar().slice(before.events)
  execFileSync('systemctl', ['--user', 'stop', units[0]])
  const stopped = eventsSoFar().length
  await night()
  const whenStopped = eventsSoFar().slice(stopped)
  const beforeRedeploy = eventsSoFar().length
  await night({ redeploy: 'true' })
  return { changed, isSameRun, whileUnchanged, whenStopped, onRedeploy: eventsSoFar().slice(beforeRedeploy) }
}

function writeConfig({ workspace }: LocalStage): void {
  writeFileSync(join(workspace.path, 'host-config.yaml'), HOST_CONFIG)
}

async function watchMarketplace() {
  const stage = await openStage()
  try {
    writeConfig(stage)
    stage.writePlan(
      planWith(
        'action: stop, plugin: greeter',
        'action: restart, plugin: greeter',
        'action: healthcheck, plugin: greeter, timeout: 4',
      ),
    )
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    return await watch(['app-greeter.service'], inputs =>
      stage.deploy({ 'host-config': 'host-config.yaml', ...inputs }, { env: ENV }),
    )
  } finally {
    await stage.close()
  }
}

async function watchProject() {
  const stage = await openProjectStage()
  try {
    writeConfig(stage)
    const restarts = `  - {id: cart-up, action: restart, plugin: cart, depends_on: [mailer]}
  - {id: all-up, action: restart, depends_on: [cart-up]}
`
    await stage.publish('1.0.0', projectFiles('1.0.0', { 'deployment/install.yaml': PROJECT_PLAN + restarts }))
    return await watch(['app-cart.service', 'shop.service'], inputs =>
      stage.deploy({ 'host-config': 'host-config.yaml', ...inputs }, { env: ENV }),
    )
  } finally {
    await stage.close()
  }
}

console.log(JSON.stringify({ marketplace: await watchMarketplace(), project: await watchProject() }))
