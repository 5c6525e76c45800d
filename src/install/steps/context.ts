import type { PluginNeeds, PluginYaml } from '../../core/content/plugin-yaml.ts'
import { DeploymentError } from '../../core/errors.ts'
import { monotonicMs } from '../../core/log.ts'
import { isInstallStep, isMarkerStep, placeOfInstall } from '../../core/plan/binding.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/step.ts'
import type { PartTree } from '../files/extracted-tree.ts'
import { type Place, placeName } from '../host/layout.ts'
import type { ReplacingPart } from '../host/previous-install.ts'
import type { InstalledRow, InstalledVersion, SnapshotRow, SourceRecord } from '../host/rows.ts'
import { uniteKeepPaths } from '../host/snapshots.ts'
import type { StepEntry } from '../journal/facts.ts'
import { findNamed, keyOfService, type NamedService, serviceOf } from '../services/supervise.ts'
import type { Deployment } from '../transaction/record.ts'
import type { Transaction } from '../transaction/transaction.ts'
import type { TreeIdentity } from '../trees/record.ts'

/** A plan that fits this host, with all parts that the plan installs. */
export interface InstallOrder {
  /** In the order in which they run. */
  readonly steps: readonly PlanStep[]
  readonly parts: readonly Part[]
  /** The parts that the new version no longer contains. They are removed before the first step. */
  readonly removals: readonly InstalledPart[]
  /** The origin of all parts, as `installed.json` records it. */
  readonly origin: Pick<InstalledRow, 'contract' | 'slug' | 'project_version'>
  /** Whether the replaced versions stay as snapshots after success. */
  readonly snapshot: boolean
  readonly hostConfig: HostConfig | undefined
  /**
   * The ids of the steps that this host skips: the host config says `supervisor: none`, or there is no command for the
   * step's event.
   */
  readonly skipped: ReadonlySet<string>
}

/** The result of the steps for one part. */
interface PartResult {
  /** The new tree; undefined for a part that was removed. */
  readonly tree?: TreeIdentity
  /** The snapshot to which the replaced or removed tree was moved, if there was one. */
  readonly snapshot?: string | undefined
  /** The version of the tree in that snapshot, as far as it is known. */
  readonly version?: string | null
  /** The identity of the tree in that snapshot, if that tree had been modified on this host. */
  readonly modified?: TreeIdentity | undefined
}

/** The tools and the state that the steps of a plan share. */
export interface StepContext {
  readonly deployment: Deployment
  readonly order: InstallOrder
  readonly transaction: Transaction
  /** The ids of the steps for which nothing changes. */
  readonly idle: ReadonlySet<string>
  /** A private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  /** The results so far, by the part's name. */
  readonly results: Map<string, PartResult>
}

/**
 * Returns the service of one plugin; without a plugin, the project-wide unit or, if there is none, each part's service.
 */
export function servicesOf(order: InstallOrder, plugin: string | undefined): NamedService[] {
  const config = requireConfig(order)
  const projectWide = plugin === undefined ? findNamed(config, null) : undefined
  if (projectWide !== undefined) return [{ service: projectWide, part: null }]
  const ids = plugin === undefined ? order.parts.map(part => part.id) : [plugin]
  const services = ids.map(part => ({ service: requireEntry(serviceOf(config, part), 'supervisor'), part }))
  return [...new Map(services.map(named => [keyOfService(named.service), named])).values()]
}

export function requireConfig({ hostConfig }: Pick<InstallOrder, 'hostConfig'>): HostConfig {
  if (hostConfig === undefined)
    throw new DeploymentError('step_failed', 'The plan needs a host config, but there is none: set host-config.')
  return hostConfig
}

/**
 * Returns an entry that the plan needs. The entry should exist, because the plan was checked before anything was
 * fetched. Throws DeploymentError `step_failed` if the entry does not exist.
 */
export function requireEntry<T extends object>(entry: T | undefined, name: string): T {
  if (entry === undefined) throw new DeploymentError('step_failed', `The host config has no ${name}.`)
  return entry
}

/** The settings that a part reads, by name. */
export interface PartEnvironment {
  readonly required: readonly string[]
  readonly optional: readonly string[]
  /** The file with the only settings that the host framework gives the part, in the part's own directory. */
  readonly envFile?: string
  /** Whether the host framework runs the part in processes of its own, which it starts itself. */
  readonly isEphemeral?: boolean
  /** Absent without a plugin.yaml. */
  readonly needs?: PluginNeeds
}

/** Returns the settings that a plugin reads according to its plugin.yaml; none for a part without a plugin.yaml. */
export function environmentOf(pluginYaml: PluginYaml | undefined): PartEnvironment {
  if (pluginYaml === undefined) return { required: [], optional: [] }
  const { environment, envFile, needs, executionMode } = pluginYaml
  return {
    ...environment,
    ...(envFile !== undefined && { envFile }),
    ...(executionMode?.toLowerCase() === 'ephemeral' && { isEphemeral: true }),
    needs,
  }
}

/** Returns the paths in a part that belong to the host: keep-paths, and the settings that its framework injects. */
export function keptIn(
  { keepPathsOf }: Pick<Deployment, 'keepPathsOf'>,
  part: Place & { readonly environment?: PartEnvironment },
): readonly string[] {
  const { environment } = part
  return uniteKeepPaths(keepPathsOf(part), environment?.envFile === undefined ? [] : [environment.envFile])
}

interface AnyPart extends ReplacingPart {
  readonly version: string
  /** Null if unknown. */
  readonly artifactSha256: string | null
  readonly environment: PartEnvironment
  /** The source of the part's files, if the artifact only names a source and does not contain them. */
  readonly source?: SourceRecord | undefined
  /** For a removed part that is installed again: the absolute path of the snapshot with the host's own files. */
  readonly leftBehind?: string | undefined
  /** For a version that a rollback restores: its entry in `installed.json`. */
  readonly returning?: ReturningVersion
}

/** A version as `installed.json` records it; `modified` if its files had been changed on this host. */
export type ReturningVersion = InstalledVersion & Pick<SnapshotRow, 'modified'>

/** A part that is verified and complete in the staging folder. */
export interface NewPart extends AnyPart {
  /** The folder that contains the new tree. */
  readonly staged: string
  readonly tree: PartTree
  readonly recorded?: undefined
  readonly retained?: undefined
  readonly intact?: undefined
}

/** A part whose tree is a snapshot on this host. */
export interface RetainedPart extends AnyPart {
  readonly retained: SnapshotRow
  readonly returning: ReturningVersion
  /** The paths that the snapshot's record leaves out. */
  readonly keepPaths: readonly string[]
  readonly intact?: undefined
}

/**
 * A part whose tree was a snapshot and now waits in the staging folder. Every byte of the tree is durable and recorded.
 */
export interface ReturningPart extends Omit<RetainedPart, 'retained'> {
  readonly staged: string
  readonly recorded: TreeIdentity
  /** The kept paths of which the snapshot had a copy in addition to the host's current one. */
  readonly replaced: readonly string[]
}

/** A part whose files are already installed, with none missing or changed. It stays in its place. */
export interface IntactPart extends AnyPart {
  readonly intact: TreeIdentity
  readonly retained?: undefined
}

/** One plugin or extension that a deployment installs. */
export type Part = NewPart | RetainedPart | IntactPart

/** Finds the part with this name, `<shelf>/<id>`. */
export function findPart(parts: readonly Part[], name: string): Part | undefined {
  return parts.find(part => placeName(part) === name)
}

/** A plugin or extension that this host has. */
export interface InstalledPart extends Place {
  readonly installed: InstalledRow
}

/**
 * The end of a step that did not fail. A warning says why the step did not do its work, although the plan continues.
 */
export type StepEnd = StepStatus | StepResult | { warning: string }

type StepStatus = 'done' | 'unchanged' | 'skipped'

export interface StepResult {
  readonly status: StepStatus
  /** In a few words: `58 files changed, 2 added`. */
  readonly did: string
  /** The same for a reader who does not see which part the step is about. */
  readonly story?: string
  /** The parts that a health check has examined. */
  readonly checked?: readonly string[]
}

/** Starts to measure the time of one step. The returned function builds the entry of that step. */
export function startEntry(step: PlanStepRun): (end: StepEnd | { failed: string }) => StepEntry {
  const started = monotonicMs()
  return end => entryOf(step, end, monotonicMs() - started)
}

/** Builds the entry of a step that has taken this many milliseconds. */
export function entryOf(
  { id, action }: PlanStepRun,
  end: StepEnd | { failed: string },
  milliseconds: number,
): StepEntry {
  const duration_ms = Math.round(milliseconds)
  if (typeof end === 'string') return { id, action, status: end, duration_ms, error: null }
  if ('did' in end) return { id, action, status: end.status, duration_ms, error: null, ...resultOf(end) }
  if ('failed' in end) return { id, action, status: 'failed', duration_ms, error: end.failed }
  return { id, action, status: 'warned', duration_ms, error: end.warning }
}

/** Builds the entry of a step that was not run. */
export function notRun({ id, action }: PlanStepRun): StepEntry {
  return { id, action, status: 'not_run', duration_ms: 0, error: null }
}

function resultOf({ did, checked }: StepResult): Pick<StepEntry, 'did' | 'checked'> {
  return checked === undefined ? { did } : { did, checked: [...checked] }
}

/**
 * The removal of a part. No plan contains such a step, but the removal is reported with the plan's steps, under the
 * part's name: `<shelf>/<id>` cannot be the id of a step of the plan.
 */
interface Removal {
  readonly id: string
  readonly action: 'remove'
  readonly part: InstalledPart
}

export type PlanStepRun = PlanStep | Removal

/** Consecutive steps, and the parts that are switched together when the first of these steps begins. */
export interface StepGroup {
  readonly steps: readonly PlanStepRun[]
  readonly removed: ReadonlyMap<InstalledPart, PlanStepRun>
  readonly staged: ReadonlyMap<NewPart, PlanStepRun>
}

/**
 * Divides all steps into runs, in order: first the removals, then the plan's steps. Consecutive steps are one run if
 * each of them removes a part, installs a part that is staged or already in its place, or does nothing. As a result, no
 * slow work comes between the switches of one run.
 */
export function divideIntoGroups(context: StepContext): StepGroup[] {
  const { removals, steps } = context.order
  const runs: PlanStepRun[][] = []
  let isOpen = false
  for (const step of [...removals.map(removalOf), ...steps]) {
    const isQuick = stagedPart(context, step) !== undefined || isInstant(context, step)
    if (isQuick && isOpen) runs.at(-1)?.push(step)
    else runs.push([step])
    isOpen = isQuick
  }
  return runs.map(run => groupOf(context, run))
}

function groupOf(context: StepContext, steps: readonly PlanStepRun[]): StepGroup {
  const removed = new Map<InstalledPart, PlanStepRun>()
  const staged = new Map<NewPart, PlanStepRun>()
  for (const step of steps) {
    const part = stagedPart(context, step)
    if (step.action === 'remove') removed.set(step.part, step)
    if (part !== undefined) staged.set(part, step)
  }
  return { steps, removed, staged }
}

function stagedPart({ order }: StepContext, step: PlanStepRun): NewPart | undefined {
  if (step.action === 'remove' || !isInstallStep(step)) return undefined
  const part = findPart(order.parts, placeOfInstall(step))
  return part === undefined || part.intact !== undefined || part.retained !== undefined ? undefined : part
}

function isInstant({ order, idle }: StepContext, step: PlanStepRun): boolean {
  if (step.action === 'remove' || order.skipped.has(step.id) || isMarkerStep(step)) return true
  switch (step.action) {
    case 'install_plugin':
    case 'install_extension':
      return findPart(order.parts, placeOfInstall(step))?.intact !== undefined
    case 'provision':
    case 'stop':
    case 'notify':
      return idle.has(step.id)
    case 'write_env':
    case 'start':
    case 'restart':
    case 'healthcheck':
      return false
  }
}

function removalOf(part: InstalledPart): Removal {
  return { id: placeName(part), action: 'remove', part }
}
