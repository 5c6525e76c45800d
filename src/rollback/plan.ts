import { join } from 'node:path'
import { isBelow } from '../core/identifiers.ts'
import { bindPlanToArtifact, bindPlanToProject } from '../core/plan/binding.ts'
import { type HostConfig, HostConfigError, parseHostConfigSlowly } from '../core/plan/host-config.ts'
import { type Plan, PlanError, parsePlanSlowly } from '../core/plan/plan.ts'
import { readyPlan, verifyServiceNames, verifyTemplates } from '../core/plan/ready.ts'
import type { PlanStep } from '../core/plan/step.ts'
import { listNames } from '../core/text.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { collectProblemsSlowly, problemAt } from '../core/yaml/problems.ts'
import { withListed } from '../install/files/spelling.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import { installPath, type Place, placeName, snapshotsPath } from '../install/host/layout.ts'
import { isGenuine } from '../install/host/snapshots.ts'
import { INSTEAD_WORDS } from '../install/journal/facts.ts'
import { describeService, findServiceOf, serviceOf } from '../install/services/supervise.ts'
import {
  environmentOf,
  findPart,
  type InstallOrder,
  type Part,
  type PartEnvironment,
  type RetainedPart,
} from '../install/steps/context.ts'
import { readPluginYaml } from '../install/steps/plugin-sig.ts'
import type { Tools } from '../install/transaction/record.ts'
import type { TreeDifference } from '../install/trees/compare.ts'
import { compareRecorded, isAsRetained, PLUGIN_YAML } from '../install/trees/drift.ts'
import { identityOf, openTreeRecord, TreeRecordDamage } from '../install/trees/record.ts'
import type { RollbackRequest, RunningRollback } from './deployment.ts'
import { damagedRecord, modifiedSnapshot, otherVersion, unrecorded } from './refusals.ts'
import type { RollbackTarget, TargetPart } from './target.ts'

const NO_SETTINGS: PartEnvironment = { required: [], optional: [] }

/** A run whose operator may have named a plan and a host config. */
interface OperatorFiles {
  readonly request: Pick<RollbackRequest, 'plan' | 'hostConfig'>
  readonly tools: Pick<Tools, 'signal'>
}

/** The operator's files, parsed. */
export interface ParsedFiles {
  readonly plan: Plan | undefined
  readonly hostConfig: HostConfig | undefined
}

/**
 * Parses the plan and the host config before the host is locked. Throws PlanError `invalid_plan` or HostConfigError
 * `invalid_host_config` with the positions of the problems.
 */
export async function parseFiles({ request, tools }: OperatorFiles): Promise<ParsedFiles> {
  return await new TimeSlice(tools.signal).run(parseSources(request))
}

function* parseSources({ plan: planFile, hostConfig: file }: OperatorFiles['request']): Generator<void, ParsedFiles> {
  const plan = yield* collectProblemsSlowly(planFile && parsePlanSlowly(planFile.text, planFile.path))
  const hostConfig = yield* collectProblemsSlowly(file && parseHostConfigSlowly(file.text, file.path))
  if (plan.problems.length > 0) throw new PlanError([...plan.problems, ...hostConfig.problems])
  if (hostConfig.problems.length > 0) throw new HostConfigError(hostConfig.problems)
  return { plan: plan.value, hostConfig: hostConfig.value }
}

/**
 * Builds the order for the verified snapshots: the operator's plan, bound to the restored parts and to what this host
 * can do, or else the default steps. Throws PlanError `invalid_plan`, or ConfigError `invalid_host_config`.
 */
export async function orderRollback(
  rollback: RunningRollback,
  target: RollbackTarget,
  files: ParsedFiles,
): Promise<InstallOrder> {
  const parts = target.parts.map(part => ({ ...part, environment: readEnvironment(rollback, part) }))
  const { steps, skipped } = await readySteps(rollback, target, files)
  const kept = parts.flatMap(part => withListed(rootOf(rollback, part), rollback.request.keepPaths))
  verifyTemplates(steps, kept, from => hasTemplate(rollback, parts, from))
  const { origin, removals } = target
  // The project's publisher has chosen the ids. As in a deployment, these ids must not reach other services.
  if (origin.contract === 'project') {
    const used = steps.filter(step => !skipped.has(step.id))
    verifyServiceNames(files.hostConfig, { steps: used, removedIds: removals.map(({ id }) => id) })
  }
  // The replaced version always stays as a snapshot, because it may be impossible to fetch it again.
  return { steps, skipped, parts, removals, origin, snapshot: true, hostConfig: files.hostConfig }
}

type Steps = Pick<InstallOrder, 'steps' | 'skipped'>

async function readySteps(
  rollback: RunningRollback,
  target: RollbackTarget,
  { plan, hostConfig }: ParsedFiles,
): Promise<Steps> {
  if (plan === undefined) {
    const steps = await buildDefaultSteps(rollback, target, hostConfig)
    rollback.record.planSteps(steps)
    return { steps, skipped: new Set() }
  }
  const { bound, skipped } = readyPlan(plan, hostConfig, () => bindRollbackPlan(rollback, target, plan))
  rollback.record.planSteps(bound.steps)
  return { steps: bound.steps, skipped }
}

function bindRollbackPlan(
  { request }: RunningRollback,
  target: RollbackTarget,
  plan: Plan,
): { steps: readonly PlanStep[] } {
  const { subject } = request
  if (subject.contract === 'project') return bindToProject(target, plan)
  const bound = bindPlanToArtifact(plan, { kind: subject.kind, slug: target.origin.slug })
  if (bound.id === subject.id) return bound
  const message = `step "${bound.installStep.id}": this plan installs "${bound.id}", but this run rolls back "${subject.id}"`
  throw new PlanError([problemAt(bound.installStep, message)])
}

/**
 * Requires that the operator's plan restores each part. The bundled plan of the restored version is no longer on the
 * host.
 */
function bindToProject({ origin, version, parts }: RollbackTarget, plan: Plan): { steps: readonly PlanStep[] } {
  const inManifest = parts.map(({ shelf, id, version: own }) => {
    const part = { shelf, id, directory: shelf, version: own, folder: `${shelf}/${id}`, sha256: null }
    return { ...part, environment: NO_SETTINGS, source: null }
  })
  const bound = bindPlanToProject(plan, {
    projectId: origin.slug,
    projectName: origin.slug,
    version,
    builtAt: '',
    parts: inManifest,
    contentSha256: '',
    pluginsDirname: 'plugins',
  })
  const missing = bound.notInstalled.map(placeName)
  if (missing.length === 0) return bound
  const message = `no step installs ${listNames(missing)}, but a project is rolled back only as a whole: add a step for each missing part`
  throw new PlanError([problemAt(plan.positions.steps, message)])
}

/** A plugin names its settings in its own plugin.yaml, which is in the snapshot or, if the part stays, in its place. */
function readEnvironment(rollback: RunningRollback, part: TargetPart): PartEnvironment {
  if (part.shelf !== 'plugins') return NO_SETTINGS
  try {
    return environmentOf(readPluginYaml(rootOf(rollback, part)))
  } catch {
    // A project's plugin may have no plugin.yaml.
    return NO_SETTINGS
  }
}

function rootOf({ layout }: RunningRollback, part: TargetPart): string {
  return part.retained === undefined ? installPath(layout, part) : join(snapshotsPath(layout, part), part.retained.name)
}

function hasTemplate({ layout }: RunningRollback, parts: readonly Part[], from: string): boolean {
  const [shelf, id, ...path] = from.split('/')
  const part = findPart(parts, `${shelf}/${id}`)
  const identity = part?.retained ?? part?.intact
  const find = identity && openTreeRecord(layout, identity)
  return (find?.(path.join('/'))?.kind ?? 'link') !== 'link'
}

const HEALTHCHECK_SECONDS = 60
/** The time that a check may need in addition to the seconds for which it must be stable. */
const SPARE_SECONDS = 30
const RETRIES = 1
/** The properties that all these steps share. The steps have no real position, because they are in no file. */
const STEP = { dependsOn: [], snapshot: true, file: '', line: 1, column: 1 } as const

/**
 * Builds the steps of a rollback without a plan. The steps restore all parts. If the host config has a supervisor, they
 * then restart and check each part's service. Otherwise, they run the health checks that the host config has for the
 * parts.
 *
 * `findServiceOf` finds the service of a part. If it finds none, no service is restarted, and a warning says so.
 */
async function buildDefaultSteps(
  rollback: RunningRollback,
  { parts }: Pick<RollbackTarget, 'parts'>,
  hostConfig: HostConfig | undefined,
): Promise<PlanStep[]> {
  const restores = parts.map(restoreStep)
  if (hostConfig === undefined) return restores
  const known: KnownService[] = []
  for (const { id } of parts) known.push(await findKnown(rollback, hostConfig, id))
  const restarts = known.filter(({ service }) => service !== 'none').map(restartStep)
  const checks = known.filter(({ service, seconds }) => service !== 'none' || seconds !== undefined).map(checkStep)
  return [...restores, ...uniqueById(restarts), ...uniqueById(checks)]
}

/** The service and the health check of an id, according to the host config. */
interface KnownService {
  readonly id: string
  readonly service: 'own' | 'project' | 'none'
  /** The seconds for which the health check must be stable; undefined without a health check. */
  readonly seconds: number | undefined
}

async function findKnown({ tools }: RunningRollback, hostConfig: HostConfig, id: string): Promise<KnownService> {
  const known = { id, seconds: hostConfig.plugins.get(id)?.healthcheck?.stableForSeconds }
  const usual = serviceOf(hostConfig, id)
  if (usual === undefined) return { ...known, service: 'none' }
  const found = await findServiceOf(hostConfig, id, { signal: tools.signal })
  if (found !== undefined) return { ...known, service: found.part === null ? 'project' : 'own' }
  tools.log.warning(
    `The ${describeService(usual)} is not running, and the host config has no entry for ${id}, so no service is restarted for ${id}. If another service runs ${id}, restart that service, or add plugins.${id} to the host config.`,
  )
  return { ...known, service: 'none' }
}

function restoreStep({ shelf, id }: Place): PlanStep {
  const step = { ...STEP, id: `restore-${id}` }
  return shelf === 'plugins'
    ? { ...step, action: 'install_plugin', plugin: id }
    : { ...step, action: 'install_extension', extension: id }
}

function restartStep({ id, service }: KnownService): PlanStep {
  if (service === 'project') return { ...STEP, id: 'restart', action: 'restart' }
  return { ...STEP, id: `restart-${id}`, action: 'restart', plugin: id }
}

function checkStep({ id, service, seconds = 0 }: KnownService): PlanStep {
  const timeoutSeconds = Math.max(HEALTHCHECK_SECONDS, seconds + SPARE_SECONDS)
  const step = { ...STEP, action: 'healthcheck', timeoutSeconds, retries: RETRIES } as const
  return service === 'project' ? { ...step, id: 'health' } : { ...step, id: `health-${id}`, plugin: id }
}

function uniqueById(steps: readonly PlanStep[]): PlanStep[] {
  return [...new Map(steps.map(step => [step.id, step])).values()]
}

/**
 * Compares the content of each snapshot to restore with its record. Throws DeploymentError `snapshot_modified` if a
 * file differs or there is no usable record, and `inconsistent` if a row names a different version than the files.
 */
export async function verifySnapshots(rollback: RunningRollback, { parts }: RollbackTarget): Promise<void> {
  for (const part of parts) if (part.retained !== undefined) await verifySnapshot(rollback, part)
  for (const part of parts) if (part.retained !== undefined) verifyRestoredVersion(rollback, part)
}

type RestoredPart = Omit<RetainedPart, 'environment'>

/**
 * Compares the recorded version of a plugin with its plugin.yaml. Skips a part of a project, because the manifest may
 * give it another version. Also skips a snapshot or plugin.yaml that may have been changed on the host.
 */
function verifyRestoredVersion({ layout, request }: RunningRollback, part: RestoredPart): void {
  const isOwn = part.shelf === 'plugins' && request.subject.contract === 'marketplace' && isGenuine(part.retained)
  const root = join(snapshotsPath(layout, part), part.retained.name)
  if (!isOwn || isBelow(withListed(root, part.keepPaths))(PLUGIN_YAML)) return
  const { version } = readPluginYaml(root)
  if (version !== undefined && !isSameVersion(version, part.version))
    throw otherVersion(layout.installed, { root, recorded: part.version, found: version })
}

async function verifySnapshot({ layout, tools }: RunningRollback, part: RestoredPart): Promise<void> {
  const { retained, keepPaths } = part
  const root = join(snapshotsPath(layout, part), retained.name)
  const tree = { root, keepPaths, identity: identityOf(retained) }
  const compared = compareRecorded(layout, tree, { byContent: true, signal: tools.signal })
  const difference = await compared.catch(error => {
    throw error instanceof TreeRecordDamage ? damagedRecord(root, error.message) : error
  })
  if (difference === undefined) throw unrecorded(root)
  const added = retained.modified ? difference.added : []
  if (!isAsRetained(retained, difference)) {
    const counted = added.length > 0 ? { ...difference, added: [] } : difference
    throw modifiedSnapshot(root, differenceInWords(counted))
  }
  const restored = `${placeName(part)} ${part.version}`
  const unchecked = added.length === 0 ? '' : ` Nothing is known of the added files: ${listNames(added)}.`
  if (retained.modified)
    tools.log.warning(
      `${restored} contains changes that were made on this host, and is restored with them.${unchecked}`,
    )
  else tools.log.did(`${restored} as it was installed`)
}

function differenceInWords({ changed, removed, added, instead }: TreeDifference): string {
  if (instead !== undefined) return INSTEAD_WORDS[instead]
  const named = [
    changed.map(path => `${path} changed`),
    removed.map(path => `${path} removed`),
    added.map(path => `${path} added`),
  ]
  return listNames(named.flat())
}
