import { type HostConfig, HostConfigError, parseHostConfig } from '../core/host-config.ts'
import { type Plan, PlanError, parsePlan } from '../core/plan.ts'
import { checkPlanNeeds } from '../core/plan-needs.ts'
import { type BoundPlan, bindPlanToArtifact } from '../core/single-artifact-plan.ts'
import { SourceError, type SourceProblem } from '../core/source-problem.ts'
import type { ExtractedTree } from '../install/extract-zip.ts'
import type { DeployRequest } from './deploy-request.ts'

export interface ReadyPlan extends BoundPlan {
  plan: Plan
  hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` in the host config leaves out. */
  skipped: ReadonlySet<string>
}

/**
 * The operator's plan, bound to what is deployed and to what this host can do, before anything is fetched (contract 4.3, rule 6).
 * Throws PlanError `invalid_plan` (or HostConfigError `invalid_host_config` when only that file is wrong) with every problem at its place.
 */
export function readyPlan(request: DeployRequest): ReadyPlan {
  const { plan, hostConfig } = parseSources(request)
  const bound = collectProblems(() => bindPlanToArtifact(plan, request))
  const needs = checkPlanNeeds(plan, hostConfig)
  const skipped = new Set(needs.skipped.map(step => step.id))
  const problems = [...bound.problems, ...needs.problems]
  if (problems.length > 0 || bound.value === undefined) throw new PlanError(problems)
  return { ...bound.value, plan, hostConfig, skipped }
}

/**
 * Checks what the plan takes from the artifact: every template is a regular file of it, and not below a keep-path, where
 * the host's own file would be read in its place. Throws PlanError `invalid_plan`.
 */
export function bindToTree(ready: ReadyPlan, tree: ExtractedTree, keepPaths: readonly string[]): void {
  const files = new Set(tree.files.map(file => file.path))
  const problems = ready.steps.flatMap(step => {
    if (step.action !== 'write_env') return []
    const path = step.from.split('/').slice(2).join('/')
    const kept = keepPaths.find(keep => path === keep || path.startsWith(`${keep}/`))
    if (kept === undefined && files.has(path)) return []
    const what =
      kept === undefined
        ? 'which is not a regular file of the artifact'
        : `which lies in ${kept}, a path that keep-paths leaves to the host`
    const message = `step "${step.id}": from names ${step.from}, ${what}`
    return [{ message, file: ready.plan.file, line: step.line, column: step.column }]
  })
  if (problems.length > 0) throw new PlanError(problems)
}

function parseSources(request: DeployRequest): { plan: Plan; hostConfig: HostConfig | undefined } {
  const plan = collectProblems(() => parsePlan(request.plan.text, request.plan.path))
  const source = request.hostConfig
  const hostConfig = collectProblems(() => source && parseHostConfig(source.text, source.path))
  if (plan.value === undefined) throw new PlanError([...plan.problems, ...hostConfig.problems])
  if (hostConfig.problems.length > 0) throw new HostConfigError(hostConfig.problems)
  return { plan: plan.value, hostConfig: hostConfig.value }
}

/** The value, or the problems of the operator's file, so that the next file is looked at as well. */
function collectProblems<T>(read: () => T): { value: T | undefined; problems: readonly SourceProblem[] } {
  try {
    return { value: read(), problems: [] }
  } catch (error) {
    if (!(error instanceof SourceError)) throw error
    return { value: undefined, problems: error.problems }
  }
}
