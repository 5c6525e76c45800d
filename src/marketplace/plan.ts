import { collectProblemsSlowly } from '../core/document/source-problem.ts'
import { type HostConfig, HostConfigError, parseHostConfigSlowly } from '../core/plan/host-config.ts'
import { type Plan, PlanError, parsePlanSlowly } from '../core/plan/plan.ts'
import { readyPlan, verifyTemplates } from '../core/plan/ready-plan.ts'
import { type BoundPlan, bindPlanToArtifact } from '../core/plan/single-artifact-plan.ts'
import type { DeployRequest } from './request.ts'

export interface ReadyArtifactPlan extends BoundPlan {
  plan: Plan
  hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` in the host config leaves out. */
  skipped: ReadonlySet<string>
}

/** The operator's files, and what they are for. */
export type PlanSources = Pick<DeployRequest, 'slug' | 'kind' | 'plan' | 'hostConfig'>

/**
 * The operator's plan, bound to what is deployed and to what this host can do, before anything is fetched (contract
 * 4.3, rule 6). Pauses at each `yield`. Throws PlanError `invalid_plan` (or HostConfigError `invalid_host_config` when only that file is wrong)
 * with the position of every problem.
 */
export function* readyArtifactPlan(request: PlanSources): Generator<void, ReadyArtifactPlan> {
  const { plan, hostConfig } = yield* parseSources(request)
  yield
  const { bound, skipped } = readyPlan(plan, hostConfig, () => bindPlanToArtifact(plan, request))
  return { ...bound, plan, hostConfig, skipped }
}

/** Checks what the plan takes from the artifact, which has these regular files. Throws PlanError `invalid_plan`. */
export function bindToFiles(
  { steps }: ReadyArtifactPlan,
  hasFile: (path: string) => boolean,
  keepPaths: readonly string[],
): void {
  verifyTemplates(steps, keepPaths, from => hasFile(from.split('/').slice(2).join('/')))
}

function* parseSources(request: PlanSources): Generator<void, { plan: Plan; hostConfig: HostConfig | undefined }> {
  const plan = yield* collectProblemsSlowly(parsePlanSlowly(request.plan.text, request.plan.path))
  const source = request.hostConfig
  const hostConfig = source && (yield* collectProblemsSlowly(parseHostConfigSlowly(source.text, source.path)))
  if (plan.value === undefined) throw new PlanError([...plan.problems, ...(hostConfig?.problems ?? [])])
  if (hostConfig && hostConfig.problems.length > 0) throw new HostConfigError(hostConfig.problems)
  return { plan: plan.value, hostConfig: hostConfig?.value }
}
