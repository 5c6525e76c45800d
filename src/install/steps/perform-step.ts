import { DeploymentError } from '../../core/errors.ts'
import type { HostCommand, HostConfig } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { installPath, placeName } from '../host/layout.ts'
import { compareTree, writeTreeRecord } from '../host/tree-record.ts'
import { checkHealth } from '../services/check-health.ts'
import type { ServiceAction } from '../services/commands.ts'
import { healthchecksOf } from '../services/healthchecks.ts'
import { describeService, projectServiceOf, type Service, serviceOf } from '../services/service.ts'
import { runHostCommand } from './host-command.ts'
import { installTree } from './install-tree.ts'
import type { StepEnd } from './run-steps.ts'
import type { NewThing, StepContext } from './step-context.ts'
import { writeEnv } from './write-env.ts'

/** Runs one step of a plan. Throws DeploymentError `step_failed`, `step_timed_out`, `unhealthy`, or what the disk says. */
export async function performStep(context: StepContext, step: PlanStep): Promise<StepEnd> {
  if (context.skipped.has(step.id)) {
    context.log.notice(`Step ${step.id} (${step.action}) is skipped: the host config says supervisor: none.`)
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
      return install(context, findThing(context, `plugins/${step.plugin}`))
    case 'install_extension':
      return install(context, findThing(context, `extensions/${step.extension}`))
    case 'write_env':
      return writeSettings(context, step.plugin, step.from)
    case 'provision':
      return provision(context, step.plugin)
    case 'start':
    case 'stop':
    case 'restart':
      return supervise(context, step.action, step.plugin)
    case 'healthcheck':
      return verifyHealth(context, step)
    case 'notify':
      return notify(context, step)
  }
}

async function install(context: StepContext, thing: NewThing): Promise<StepEnd> {
  const { layout, transaction, log, keepPaths, signal } = context
  const { shelf, id, version, staged, previous } = thing
  if (await isInstalledAlready(context, thing)) {
    await writeTreeRecord(layout, thing.record)
    log.info(`${placeName(thing)} is ${version} with these bytes already, and intact: nothing to change.`)
    return 'unchanged'
  }
  const previousVersion = previous.version
  const snapshot = await installTree({
    layout,
    transaction,
    log,
    shelf,
    id,
    staged,
    get record() {
      return thing.record
    },
    previousVersion,
    leftBehind: thing.leftBehind,
    keepPaths,
    signal,
  })
  if (snapshot !== undefined) context.replaced.set(placeName(thing), snapshot)
  log.info(`${installPath(layout, thing)} is now ${version} (tree digest ${thing.record.digest}).`)
  return 'done'
}

async function isInstalledAlready(context: StepContext, thing: NewThing): Promise<boolean> {
  const { installed } = thing.previous
  if (installed?.artifact_sha256 !== thing.artifactSha256 || installed.tree_digest !== thing.record.digest) return false
  const tree = { root: installPath(context.layout, thing), keepPaths: context.keepPaths }
  const { missing, changed } = await compareTree(tree, thing.record, context.signal)
  return missing.length === 0 && changed.length === 0
}

async function writeSettings(context: StepContext, id: string, from: string): Promise<StepEnd> {
  const { layout, transaction, log, variables, stagingFolder } = context
  const { shelf, environment } = findThing(context, `${from.split('/')[0]}/${id}`)
  return writeEnv({ layout, transaction, log, shelf, id, from, environment, variables, stagingFolder })
}

async function provision(context: StepContext, id: string): Promise<StepEnd> {
  const name = `provision.${id}`
  await runHostCommand({
    name,
    command: requireEntry(context.hostConfig?.provision.get(id), name),
    args: [id],
    variables: { PROVISION_PLUGIN_ID: id },
    facts: context.facts,
    log: context.log,
    signal: context.signal,
  })
  return 'done'
}

async function supervise(context: StepContext, action: ServiceAction, plugin: string | undefined): Promise<StepEnd> {
  const ids = plugin === undefined ? context.things.map(thing => thing.id) : [plugin]
  for (const service of servicesOf(requireConfig(context), ids, plugin === undefined)) {
    context.log.info(`${action} ${describeService(service)}`)
    await context.transaction.supervise(service, action, context.signal)
  }
  return 'done'
}

/** One project-wide unit, or the service of each id. */
function servicesOf(config: HostConfig, ids: readonly string[], isProjectWide: boolean): Service[] {
  const findService = isProjectWide ? projectServiceOf : serviceOf
  const services = ids.map(id => requireEntry(findService(config, id), 'supervisor'))
  return [...new Map(services.map(service => [JSON.stringify(service), service])).values()]
}

async function verifyHealth(
  context: StepContext,
  step: Extract<PlanStep, { action: 'healthcheck' }>,
): Promise<StepEnd> {
  const { things, log, signal } = context
  const ids = things.map(thing => thing.id)
  for (const healthcheck of healthchecksOf(step, requireConfig(context), ids)) {
    const version = things.find(thing => thing.id === healthcheck.id)?.version ?? null
    log.info(`${healthcheck.id} is healthy. ${await checkHealth({ healthcheck, version, log, signal })}`)
  }
  return 'done'
}

/** A team that could not be told is no reason to take a healthy version back. */
async function notify(context: StepContext, step: Extract<PlanStep, { action: 'notify' }>): Promise<StepEnd> {
  const message = step.message ?? ''
  const name = `notify.${step.event}`
  try {
    await runHostCommand({
      name,
      command: requireEntry(context.hostConfig?.notify.get(step.event), name),
      args: [step.event, message],
      variables: { NOTIFY_EVENT: step.event, NOTIFY_MESSAGE: message },
      facts: context.facts,
      log: context.log,
      signal: context.signal,
    })
    return 'done'
  } catch (error) {
    context.signal.throwIfAborted()
    const warning = `nobody was told. ${error instanceof Error ? error.message : String(error)}`
    context.log.warning(`Step ${step.id}: ${warning}`)
    return { warning }
  }
}

function findThing(context: StepContext, place: string): NewThing {
  return requireEntry(
    context.things.find(thing => placeName(thing) === place),
    place,
  )
}

function requireConfig({ hostConfig }: StepContext): HostConfig {
  return requireEntry(hostConfig, 'host-config')
}

/** The plan was compared with the host config before anything was fetched, so nothing is missing here. */
function requireEntry<T extends HostCommand | object>(entry: T | undefined, what: string): T {
  if (entry === undefined) throw new DeploymentError('step_failed', `The host config has no ${what}.`)
  return entry
}
