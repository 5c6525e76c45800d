import { isInstallStep, placeOfInstall, placeOfSettings, subjectIdOf } from '../../core/plan/binding.ts'
import { unknownSettings, unsetSettings } from '../../core/plan/settings.ts'
import { isHostAction, type PlanStep } from '../../core/plan/step.ts'
import { listNames } from '../../core/text.ts'
import { pathExistsSync } from '../files/walk.ts'
import { type PartName, placeName, placePath, settingsPath } from '../host/layout.ts'
import type { Deployment, PlannedStep } from '../transaction/record.ts'
import { isPending } from '../transaction/rollback.ts'
import { type InstallOrder, type Part, type StepContext, servicesOf } from './context.ts'
import { tryToReadSettings } from './loading.ts'
import { injectedEnvPath, missingInjectedEnv } from './settings.ts'

/**
 * Returns the ids of the steps that act on services or run commands only for parts that this deployment leaves as they
 * are. Excludes steps for services that are still pending. If one of a plugin's steps that act on services or run
 * commands depends on a step that changes a part, excludes all of these steps of the plugin. A step without `plugin`
 * concerns all parts. Must be called before the first step, so that a `stop` is skipped together with its `start`.
 * Returns no ids with `redeploy`.
 */
export function findIdleSteps(deployment: Deployment, order: InstallOrder): ReadonlySet<string> {
  const { request } = deployment
  if (request.redeploy) return new Set()
  const changed = order.parts.filter(part => isPartChanging(deployment, order, part))
  const changing = new Set([...changed.map(({ id }) => id), ...findDependent(order, changed)])
  const isAnyChanging = changed.length > 0 || order.removals.length > 0
  const known = new Set(order.parts.map(({ id }) => id))
  const isIdle = (step: PlanStep): boolean => {
    const id = subjectIdOf(step)
    return (
      isHostAction(step.action) &&
      !order.skipped.has(step.id) &&
      !isOverdue(deployment, order, step) &&
      !(id !== undefined && known.has(id) ? changing.has(id) : isAnyChanging)
    )
  }
  return new Set(order.steps.filter(isIdle).map(({ id }) => id))
}

/** True if a step is about a service that is pending, although this run has tried to restart it. */
function isOverdue({ layout, record }: Deployment, order: InstallOrder, step: PlanStep): boolean {
  if (step.action !== 'stop' && step.action !== 'start' && step.action !== 'restart') return false
  if (order.hostConfig === undefined) return false
  return servicesOf(order, step.plugin).some(({ part }) => isPending(layout, part, record.facts))
}

/**
 * Returns the `plugin` of each step that acts on the host and depends, directly or indirectly, on a step that changes
 * one of these parts.
 */
function findDependent({ steps }: InstallOrder, changed: readonly Part[]): string[] {
  const places = new Set(changed.map(placeName))
  const reached = new Set<string>()
  for (const step of steps)
    if (places.has(placeOfChange(step) ?? '') || step.dependsOn.some(id => reached.has(id))) reached.add(step.id)
  return steps.flatMap(step =>
    isHostAction(step.action) && reached.has(step.id) && 'plugin' in step ? [step.plugin] : [],
  )
}

/** Returns the place of the part that a step installs, or whose settings the step creates. */
function placeOfChange(step: PlanStep): string | undefined {
  if (step.action === 'write_env') return placeOfSettings(step)
  return isInstallStep(step) ? placeOfInstall(step) : undefined
}

/**
 * True if a part is not intact, or if a settings file of the part is missing. Creating that file counts as a change,
 * even for earlier steps.
 */
function isPartChanging(deployment: Deployment, order: InstallOrder, part: Part): boolean {
  return part.intact === undefined || missingSettings(deployment, order, part).length > 0
}

/**
 * Logs in one line which steps were skipped because nothing changes for them. Call this function once no further step
 * runs.
 */
export function announceSkipped({ tools, record }: Recorded, idle: ReadonlySet<string>): void {
  const skipped = record.steps.filter(({ id, status }) => idle.has(id) && status === 'skipped')
  if (skipped.length > 0)
    tools.log.info(`Nothing changes for these steps, which were skipped: ${namesOf(skipped)}.${remedyOf(record)}`)
}

/**
 * In a dry run, notes in the record which steps a real run would skip because nothing changes for them, and logs these
 * steps in one line.
 */
export function announceIdleSteps({ tools, record }: Recorded, idle: ReadonlySet<string>): void {
  record.noteIdle(idle)
  const skipped = record.plannedSteps.filter(({ isIdle }) => isIdle)
  if (skipped.length === 0) return
  const isAnyService = skipped.some(({ action }) => action === 'restart' || action === 'start')
  const exception = isAnyService ? ' A service of these steps that is not running would be started.' : ''
  tools.log.info(
    `Nothing changes for these steps, which would be skipped: ${namesOf(skipped)}.${exception}${remedyOf(record)}`,
  )
}

type Recorded = Pick<Deployment, 'tools' | 'record'>

/** A rollback has no input `redeploy`. */
function remedyOf({ facts }: Recorded['record']): string {
  return facts.rollback_of === undefined ? ' With redeploy: true, these steps run.' : ''
}

function namesOf(steps: readonly PlannedStep[]): string {
  return steps.map(({ id, action }) => `${id} (${action})`).join(', ')
}

/** True if a plan has a `write_env` step for a part. */
function writesSettings(steps: readonly PlanStep[], part: PartName): boolean {
  return steps.some(step => step.action === 'write_env' && placeOfSettings(step) === placeName(part))
}

/** Returns the absolute paths of the settings files that a plan's `write_env` steps will create for a part. */
export function missingSettings(
  { layout }: Pick<Deployment, 'layout'>,
  { steps }: Pick<InstallOrder, 'steps'>,
  part: Part,
): string[] {
  if (!writesSettings(steps, part)) return []
  const path = settingsPath(layout, part)
  const injected = missingInjectedEnv(layout, part)
  return [...(pathExistsSync(path) ? [] : [path]), ...(injected === undefined ? [] : [injected])]
}

type Context = Pick<StepContext, 'deployment' | 'order'>

/**
 * Logs the names of required settings that the host lacks, for parts without a `write_env` step. (A `write_env` step
 * itself fails if settings are missing.) Logs no names if the settings cannot be read. Also logs a notice if the input
 * `settings` has no effect because the plan has no `write_env` step. Never throws.
 */
export function noticeSettings(context: Context): void {
  noticeUnset(context)
  noticeUnused(context)
}

function noticeUnused({ deployment, order }: Context): void {
  const names = [...deployment.request.settings.keys()]
  if (names.length === 0 || order.steps.some(({ action }) => action === 'write_env')) return
  deployment.tools.log.notice(
    `The settings given as input contain ${listNames(names)}, but the plan has no write_env step, so these settings are not written.`,
  )
}

function noticeUnset({ deployment, order }: Context): void {
  for (const part of order.parts) {
    if (writesSettings(order.steps, part)) continue
    const { required } = part.environment
    const path = settingsPath(deployment.layout, part)
    const text = required.length === 0 ? undefined : tryToReadSettings(path)
    const unset = text === undefined ? [] : unsetSettings(text, required)
    if (unset.length === 0) continue
    deployment.tools.log.notice(
      `${placePath(part)} requires ${listNames(unset)}, which ${path} does not set: add a line NAME=value for each to that file, or, if the file does not exist, use a plan with a write_env step, which creates it.`,
    )
  }
}

/**
 * After all steps have run, warns of plugins that lack the only settings that their host framework gives them. Omits
 * plugins with a `write_env` step, which itself logs why it could not create these settings.
 */
export function warnOfMissingEnv({ deployment, order }: Context): void {
  for (const part of order.parts) {
    const path = injectedEnvPath(deployment.layout, part)
    if (path === undefined || writesSettings(order.steps, part) || pathExistsSync(path)) continue
    deployment.tools.log.warning(
      `${placePath(part)} gets its settings from ${path} only (envconfiguration.inject in its plugin.yaml). ${path} does not exist, so the host framework may not load the plugin. Add a write_env step to the plan, or create ${path}.`,
    )
  }
}

/**
 * After all steps have run, warns of settings given as input that no settings file has a place for: their names may be
 * misspelt. Warns of nothing if a settings file cannot be read, or if no step writes settings.
 */
export function warnOfUnknownSettings({ deployment, order }: Context): void {
  const { layout, request, tools } = deployment
  const texts = order.parts
    .filter(part => writesSettings(order.steps, part))
    .map(part => tryToReadSettings(settingsPath(layout, part)))
  if (texts.length === 0 || texts.includes(undefined)) return
  const unknown = unknownSettings(
    request.settings,
    texts.map(text => text ?? ''),
  )
  if (unknown.length === 0) return
  tools.log.warning(
    `The settings given as input name ${listNames(unknown)}, which no template and no settings file has, so nothing uses them: correct the names, or remove them from settings.`,
  )
}

/**
 * Logs one notice about the ephemeral plugins that this run has replaced without a restart: the processes that the host
 * framework has started, and the framework itself, may still have the old code.
 */
export function noticeNotRestarted({ deployment, order }: Context): void {
  const isRestart = ({ action, id }: PlanStep): boolean => /^(?:re)?start$/.test(action) && !order.skipped.has(id)
  const acted = order.steps.filter(isRestart).map(subjectIdOf)
  const stale = order.parts.filter(
    ({ id, intact, environment }) =>
      environment.isEphemeral && intact === undefined && !acted.includes(id) && !acted.includes(undefined),
  )
  if (stale.length === 0) return
  deployment.tools.log.notice(
    `No step restarted ${listNames(stale.map(placePath))}, which the host framework runs itself (execution_mode: ephemeral): restart the host framework, unless it loads changed plugins by itself.`,
  )
}
