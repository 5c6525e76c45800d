import { basename } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { monotonicMs } from '../../core/log.ts'
import { isMarkerStep, placeOfInstall, placeOfSettings } from '../../core/plan/binding.ts'
import type { HostCommand } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/step.ts'
import { listFirst } from '../../core/text.ts'
import { allowedEnvironment, runChild } from '../files/child-process.ts'
import { placeName, placePath } from '../host/layout.ts'
import type { DeploymentFacts } from '../journal/facts.ts'
import { checkHealth, examinedBy, type HealthcheckStep, healthchecksOf, isOtherVersion } from '../services/health.ts'
import {
  changedVariable,
  describeChildEnd,
  describeService,
  inPast,
  type NamedService,
  readServiceState,
  type ServiceAction,
  shortName,
} from '../services/supervise.ts'
import type { Deployment } from '../transaction/record.ts'
import { isPending, noteRestorations } from '../transaction/rollback.ts'
import { addedInWords } from '../trees/drift.ts'
import {
  findPart,
  type InstallOrder,
  type IntactPart,
  type Part,
  requireConfig,
  requireEntry,
  type StepContext,
  type StepEnd,
  type StepResult,
  servicesOf,
} from './context.ts'
import { writeEnv } from './settings.ts'
import { keepReplaced, takeSnapshot } from './snapshot.ts'
import { prepareParts, switchParts } from './switch.ts'

/** A project may have many services. */
const MAX_LISTED = 5

/**
 * Runs one step of a plan. Throws DeploymentError `step_failed`, `step_timed_out`, `unhealthy`, `unsafe_host`,
 * `snapshot_modified` or `inconsistent`, file system errors, or the signal's reason.
 */
export async function performStep(context: StepContext, step: PlanStep): Promise<StepEnd> {
  if (context.order.skipped.has(step.id)) {
    const { log } = context.deployment.tools
    log.notice(
      `Step ${step.id} (${step.action}) is skipped: ${reasonToSkip(step, context.order.hostConfig !== undefined)}.`,
    )
    return 'skipped'
  }
  if (context.idle.has(step.id)) return await performIdle(context, step)
  if (isMarkerStep(step)) return 'done'
  switch (step.action) {
    case 'install_plugin':
    case 'install_extension': {
      const part = requirePart(context, placeOfInstall(step))
      if (part.intact !== undefined) return await keepPart(context, part)
      const staged = part.retained === undefined ? part : await takeSnapshot(context, part)
      const prepared = await prepareParts(context, { parts: [staged], next: new Set([staged]) })
      const results = await switchParts(context, { removed: [], prepared })
      if (staged.recorded !== undefined) await keepReplaced(context, staged)
      return results.get(staged) ?? 'done'
    }
    case 'write_env':
      return await writeEnv(context, requirePart(context, placeOfSettings(step)), step.from)
    case 'provision':
      return await provision(context, step)
    case 'start':
    case 'stop':
    case 'restart':
      return await supervise(context, step.action, step.plugin)
    case 'healthcheck':
      return await verifyHealth({ ...context.deployment, ...context.order, changed: context.transaction.changed }, step)
    case 'notify':
      return await notify(context, step)
  }
}

/**
 * Skips a step for which nothing changes. A `start` or `restart` step still starts those of its services that are not
 * running, and restarts those that answer their health check as another version.
 */
async function performIdle(context: StepContext, step: PlanStep): Promise<StepEnd> {
  if (step.action !== 'start' && step.action !== 'restart') return 'skipped'
  const { log, signal } = context.deployment.tools
  const started: string[] = []
  for (const named of servicesOf(context.order, step.plugin)) {
    const { service } = named
    const { known, up } = await readServiceState(service, { signal })
    if (known && up) {
      if (!(await runsOther(context, named))) continue
      log.warning(`${describeService(service)} does not run the installed version, so it is restarted.`)
      await context.transaction.supervise(named, 'restart', signal)
      started.push(`${shortName(service)} ran another version, and was restarted`)
      continue
    }
    if (known) log.info(`${describeService(service)} is not running, so it is started.`)
    const { was_running: wasRunning } = await context.transaction.supervise(named, 'start', signal)
    if (!wasRunning) started.push(`${shortName(service)} was not running, and was started`)
  }
  if (started.length > 0) return { status: 'done', did: listFirst(started, MAX_LISTED) }
  return step.action === 'start' ? 'unchanged' : 'skipped'
}

/** True if a service answers as another version of one of the parts that it runs. */
async function runsOther({ order, deployment }: StepContext, { part: id }: NamedService): Promise<boolean> {
  const { signal } = deployment.tools
  for (const part of order.parts.filter(part => id === null || part.id === id)) {
    const check = order.hostConfig?.plugins.get(part.id)?.healthcheck
    if (check && (await isOtherVersion(check, part.version, signal))) return true
  }
  return false
}

async function provision(context: StepContext, { plugin: id }: { readonly plugin: string }): Promise<StepEnd> {
  const name = `provision.${id}`
  const command = requireEntry(requireConfig(context.order).provision.get(id), name)
  const { changed } = context.transaction
  const variables = { PROVISION_PLUGIN_ID: id }
  await runHostCommand(context.deployment, { name, command, args: [id], changed, variables })
  return { status: 'done', did: `${basename(command.command[0])} ran` }
}

async function supervise(context: StepContext, action: ServiceAction, plugin: string | undefined): Promise<StepEnd> {
  const { transaction, deployment } = context
  const { log, signal } = deployment.tools
  const services = servicesOf(context.order, plugin)
  const { layout, record } = deployment
  for (const named of services) {
    log.info(`${action} ${describeService(named.service)}`)
    const wasPending = isPending(layout, named.part, record.facts)
    const { was_running: wasRunning } = await transaction.supervise(named, action, signal)
    if (!wasPending) continue
    // A start has no effect on a service that is still running, perhaps with files of a version that was rolled back.
    if (action === 'start' && wasRunning) await transaction.supervise(named, 'restart', signal)
    await noteRestorations(layout, { of: record.facts, restored: [named.part] })
  }
  const done = services.map(({ service }) => inPast({ service, action }))
  return { status: 'done', did: listFirst(done, MAX_LISTED) }
}

function reasonToSkip(step: PlanStep, hasHostConfig: boolean): string {
  if (step.action !== 'notify') return 'the host config says supervisor: none'
  return hasHostConfig
    ? `the host config has no command for its event, notify.${step.event}`
    : `there is no host config with a command for its event, notify.${step.event}`
}

/**
 * Runs the command for an event. Only warns if the command fails, because a failed notification is no reason to roll
 * back a healthy version. The message is never an argument: the publisher may have written it, and a command could read
 * it as an option.
 */
async function notify(context: StepContext, step: Extract<PlanStep, { action: 'notify' }>): Promise<StepEnd> {
  const { log, signal } = context.deployment.tools
  const { event, message = '' } = step
  const name = `notify.${event}`
  const variables = { NOTIFY_EVENT: event, NOTIFY_MESSAGE: message }
  try {
    const command = requireEntry(requireConfig(context.order).notify.get(event), name)
    const { changed } = context.transaction
    await runHostCommand(context.deployment, { name, command, args: [], changed, variables })
    return { status: 'done', did: `${basename(command.command[0])} ran for ${event}` }
  } catch (error) {
    signal.throwIfAborted()
    const warning = `the notification failed. ${error instanceof Error ? error.message : String(error)}`
    log.warning(`Step ${step.id}: ${warning}`)
    return { warning }
  }
}

function requirePart({ order }: StepContext, name: string): Part {
  const part = findPart(order.parts, name)
  if (part === undefined)
    throw new DeploymentError('step_failed', `This deployment contains no ${name}: correct the plan.`)
  return part
}

export interface HostCommandRequest {
  /** The command's key in the host config: `provision.greeter`. */
  name: string
  command: HostCommand
  /** Appended to the command's own arguments. */
  args: readonly string[]
  /** Whether the deployment has so far changed anything that the host runs. */
  changed: boolean
  /** Variables for this command only, in addition to those for the deployment's facts. */
  variables: Readonly<Record<string, string>>
}

/**
 * Runs a command from the host config with an allow-listed environment, in its own process group and without input.
 * Logs how long the command took. Throws DeploymentError `step_failed` or `step_timed_out`, with how the command ended
 * and the beginning of its output. Also throws the signal's reason.
 */
export async function runHostCommand({ tools, record }: Deployment, request: HostCommandRequest): Promise<void> {
  const { command, env, timeoutSeconds } = request.command
  const [program, ...args] = command
  const started = monotonicMs()
  const end = await runChild({
    command: [program, ...args, ...request.args],
    env: allowedEnvironment({
      ...factVariables(record.facts),
      ...changedVariable(request),
      ...env,
      ...request.variables,
    }),
    timeoutMs: timeoutSeconds * 1000,
    signal: tools.signal,
  })
  if (end.kind === 'exited' && end.code === 0) {
    const took = Math.round(monotonicMs() - started)
    return tools.log.info(`${request.name} of the host config ran ${program}, which succeeded after ${took} ms.`)
  }
  const code = end.kind === 'timed_out' ? 'step_timed_out' : 'step_failed'
  throw new DeploymentError(
    code,
    `${request.name} of the host config failed: ${program} ${describeChildEnd(end)} (timeout ${timeoutSeconds} s).`,
  )
}

function factVariables(facts: DeploymentFacts): Record<string, string> {
  return {
    DEPLOYMENT_ID: facts.deployment_id,
    DEPLOYMENT_KIND: facts.kind ?? '',
    DEPLOYMENT_SLUG: facts.slug ?? '',
    DEPLOYMENT_VERSION: facts.version ?? '',
    DEPLOYMENT_PREVIOUS_VERSION: facts.previous_version ?? '',
    DEPLOYMENT_HOST_ID: facts.host_id,
  }
}

/** Keeps an intact part in its place. */
export async function keepPart({ deployment, results }: StepContext, part: IntactPart): Promise<StepResult> {
  results.set(placeName(part), { tree: part.intact })
  const { added = [], uncounted } = (await deployment.drift.of(part)) ?? {}
  const more = added.length === 0 ? '' : `; ${addedInWords(added.length, uncounted)}`
  return {
    status: 'unchanged',
    did: 'unchanged',
    story: `${placePath(part)} is already ${part.version} with these files${more}`,
  }
}

/** The parts that run on a host, and the means to check their health. */
export interface HealthSubject extends Pick<InstallOrder, 'hostConfig'>, Pick<Deployment, 'tools'> {
  readonly parts: readonly { readonly id: string; readonly version: string }[]
  /** Whether the deployment has changed anything that the host runs. */
  readonly changed: boolean
}

/**
 * Runs one `healthcheck` step. Throws DeploymentError `unhealthy`, or `step_failed` if there is no host config. Also
 * throws the signal's reason.
 */
export async function verifyHealth(subject: HealthSubject, step: HealthcheckStep): Promise<StepResult> {
  const { parts, changed, tools } = subject
  const { log, signal } = tools
  const ids = parts.map(part => part.id)
  const found: string[] = []
  const config = requireConfig(subject)
  for (const healthcheck of healthchecksOf(step, config, ids)) {
    const version = parts.find(part => part.id === healthcheck.id)?.version ?? null
    const { evidence, brief } = await checkHealth({ healthcheck, version, changed, log, signal })
    log.info(`${healthcheck.id} is healthy: ${evidence}`)
    found.push(parts.length === 1 ? brief : `${healthcheck.id}: ${brief}`)
  }
  const did = listFirst(found, MAX_LISTED) || 'nothing to check'
  return { status: 'done', did, checked: examinedBy(step, config, ids) }
}
