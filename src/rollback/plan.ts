import { join } from 'node:path'
import { collectProblemsSlowly, problemAt } from '../core/document/source-problem.ts'
import { listNames } from '../core/foreign-text.ts'
import { type HostConfig, HostConfigError, parseHostConfigSlowly } from '../core/plan/host-config.ts'
import { type Plan, PlanError, parsePlanSlowly } from '../core/plan/plan.ts'
import type { PlanStep } from '../core/plan/plan-step.ts'
import { bindPlanToProject } from '../core/plan/project-plan.ts'
import { readyPlan, verifyTemplates } from '../core/plan/ready-plan.ts'
import { verifyServiceNames } from '../core/plan/service-names.ts'
import { bindPlanToArtifact } from '../core/plan/single-artifact-plan.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import { installPath, placeName, snapshotsPath } from '../install/host/layout.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import { openTreeRecord } from '../install/host/trees/record/read-tree-record.ts'
import { environmentOf, findPart, type Part, type PartEnvironment } from '../install/steps/parts/part.ts'
import type { InstallOrder } from '../install/steps/step-context.ts'
import { buildDefaultSteps } from './default-steps.ts'
import type { RunningRollback } from './deployment.ts'
import type { Target, TargetPart } from './target/target-part.ts'

const NO_SETTINGS: PartEnvironment = { required: [], optional: [] }

/** The operator's files, parsed. */
export interface ParsedFiles {
  readonly plan: Plan | undefined
  readonly hostConfig: HostConfig | undefined
}

/**
 * Parses the plan and the host config before the host is locked. Throws PlanError `invalid_plan` or HostConfigError
 * `invalid_host_config` with the positions of the problems.
 */
export async function parseFiles({ request, tools }: RunningRollback): Promise<ParsedFiles> {
  return await new TimeSlice(tools.signal).run(parseSources(request))
}

function* parseSources({ plan: planFile, hostConfig: file }: RunningRollback['request']): Generator<void, ParsedFiles> {
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
  target: Target,
  files: ParsedFiles,
): Promise<InstallOrder> {
  const parts = target.parts.map(part => ({ ...part, environment: readEnvironment(rollback, part) }))
  const { steps, skipped } = await readySteps(rollback, target, files)
  verifyTemplates(steps, rollback.keepPaths, from => hasTemplate(rollback, parts, from))
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
  target: Target,
  { plan, hostConfig }: ParsedFiles,
): Promise<Steps> {
  if (plan === undefined) {
    const steps = await buildDefaultSteps(rollback, target, hostConfig)
    rollback.record.planSteps(steps)
    return { steps, skipped: new Set() }
  }
  const { bound, skipped } = readyPlan(plan, hostConfig, () => bindPlan(rollback, target, plan))
  rollback.record.planSteps(bound.steps)
  return { steps: bound.steps, skipped }
}

function bindPlan({ request }: RunningRollback, target: Target, plan: Plan): { steps: readonly PlanStep[] } {
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
function bindToProject({ origin, version, parts }: Target, plan: Plan): { steps: readonly PlanStep[] } {
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
function readEnvironment({ layout }: RunningRollback, part: TargetPart): PartEnvironment {
  if (part.shelf !== 'plugins') return NO_SETTINGS
  const root =
    part.retained === undefined
      ? installPath(layout, part.previous.place)
      : join(snapshotsPath(layout, part), part.retained.name)
  try {
    return environmentOf(readPluginYaml(root))
  } catch {
    // A project's plugin may have no plugin.yaml.
    return NO_SETTINGS
  }
}

function hasTemplate({ layout }: RunningRollback, parts: readonly Part[], from: string): boolean {
  const [shelf, id, ...path] = from.split('/')
  const part = findPart(parts, `${shelf}/${id}`)
  const identity = part?.retained ?? part?.intact
  const find = identity && openTreeRecord(layout, identity)
  return (find?.(path.join('/'))?.kind ?? 'link') !== 'link'
}
