import { DeploymentError } from '../../core/errors.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { placeName } from '../host/layout.ts'
import { checkHealth } from '../services/check-health.ts'
import type { ServiceAction } from '../services/commands.ts'
import { healthchecksOf } from '../services/healthchecks.ts'
import { describeService, projectServiceOf, type Service, serviceOf } from '../services/service.ts'
import { runHostCommand } from './host-command.ts'
import { installPart } from './install-part.ts'
import type { Part } from './part.ts'
import type { StepEnd } from './run-steps.ts'
import type { StepContext } from './step-context.ts'
import { writeEnv } from './write-env.ts'

type Step<Action extends PlanStep['action']> = Extract<PlanStep, { action: Action }>

/**
 * Runs one step of a plan. Throws DeploymentError `step_failed`, `step_timed_out`, `unhealthy`, or what the disk says.
 */
export async function performStep(context: StepContext, step: PlanStep): Promise<StepEnd> {
  if (context.order.skipped.has(step.id)) {
    const { log } = context.deployment.tools
    log.notice(`Step ${step.id} (${step.action}) is skipped: the host config says supervisor: none.`)
    return 'skipped'
  }
  switch (step.action) {
    case 'prepare':
    case 'download':
    case 'extract':
    case 'rollback':
    case 'configure_plugin':
      return 'done'
    case 'install_plugin':
      return await installPart(context, findPart(context, `plugins/${step.plugin}`))
    case 'install_extension':
      return await installPart(context, findPart(context, `extensions/${step.extension}`))
    case 'write_env':
      return await writeEnv(context, findPart(context, `${step.from.split('/')[0]}/${step.plugin}`), step.from)
    case 'provision':
      return await provision(context, step)
    case 'start':
    case 'stop':
    case 'restart':
      return await supervise(context, step.action, step.plugin)
    case 'healthcheck':
      return await verifyHealth(context, step)
    case 'notify':
      return await notify(context, step)
  }
}

async function provision(context: StepContext, { plugin: id }: { readonly plugin: string }): Promise<StepEnd> {
  const name = `provision.${id}`
  const command = requireEntry(context.order.hostConfig?.provision.get(id), name)
  await runHostCommand(context.deployment, { name, command, args: [id], variables: { PROVISION_PLUGIN_ID: id } })
  return 'done'
}

async function supervise(context: StepContext, action: ServiceAction, plugin: string | undefined): Promise<StepEnd> {
  const { log, signal } = context.deployment.tools
  for (const service of servicesOf(context, plugin)) {
    log.info(`${action} ${describeService(service)}`)
    await context.transaction.supervise(service, action, signal)
  }
  return 'done'
}

/** The service of one plugin; without a plugin, one project-wide unit or the service of each part. */
function servicesOf(context: StepContext, plugin: string | undefined): Service[] {
  const config = requireConfig(context)
  const ids = plugin === undefined ? context.order.parts.map(part => part.id) : [plugin]
  const find = plugin === undefined ? projectServiceOf : serviceOf
  const services = ids.map(id => requireEntry(find(config, id), 'supervisor'))
  return [...new Map(services.map(service => [JSON.stringify(service), service])).values()]
}

async function verifyHealth(context: StepContext, step: Step<'healthcheck'>): Promise<StepEnd> {
  const { log, signal } = context.deployment.tools
  const { parts } = context.order
  const ids = parts.map(part => part.id)
  for (const healthcheck of healthchecksOf(step, requireConfig(context), ids)) {
    const version = parts.find(part => part.id === healthcheck.id)?.version ?? null
    log.info(`${healthcheck.id} is healthy. ${await checkHealth({ healthcheck, version, log, signal })}`)
  }
  return 'done'
}

/**
 * A failed notification is no reason to roll back a healthy version. The publisher may have written the message, so it
 * is never an argument, which many commands would read as an option.
 */
async function notify(context: StepContext, step: Step<'notify'>): Promise<StepEnd> {
  const { log, signal } = context.deployment.tools
  const { event, message = '' } = step
  const name = `notify.${event}`
  const variables = { NOTIFY_EVENT: event, NOTIFY_MESSAGE: message }
  try {
    const command = requireEntry(context.order.hostConfig?.notify.get(event), name)
    await runHostCommand(context.deployment, { name, command, args: [], variables })
    return 'done'
  } catch (error) {
    signal.throwIfAborted()
    const warning = `the notification failed. ${error instanceof Error ? error.message : String(error)}`
    log.warning(`Step ${step.id}: ${warning}`)
    return { warning }
  }
}

function findPart(context: StepContext, name: string): Part {
  return requireEntry(
    context.order.parts.find(part => placeName(part) === name),
    name,
  )
}

function requireConfig({ order }: StepContext): HostConfig {
  return requireEntry(order.hostConfig, 'host-config')
}

/** The plan was compared with the host config before anything was fetched, so nothing is missing here. */
function requireEntry<T extends object>(entry: T | undefined, name: string): T {
  if (entry === undefined) throw new DeploymentError('step_failed', `The host config has no ${name}.`)
  return entry
}
