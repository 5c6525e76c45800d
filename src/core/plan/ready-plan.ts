import { collectProblems } from '../document/source-problem.ts'
import type { HostConfig } from './host-config.ts'
import { type Plan, PlanError, type PlanProblem } from './plan.ts'
import { stepProblem } from './plan-binding.ts'
import { checkPlanNeeds } from './plan-needs.ts'
import type { PlanStep } from './plan-step.ts'
import type { ReadablePlan } from './readable-plan.ts'

/** A plan that fits its artifact and this host. */
export interface ReadyPlan<Bound> {
  readonly bound: Bound
  /**
   * The ids of the steps that are skipped because the host config has `supervisor: none`, or no command for their
   * event.
   */
  readonly skipped: ReadonlySet<string>
}

/** Binds a plan and compares it with the host config. Throws PlanError `invalid_plan` with all problems found. */
export function readyPlan<Bound>(
  plan: Plan,
  hostConfig: HostConfig | undefined,
  bind: (plan: Plan) => Bound,
): ReadyPlan<Bound> {
  const { value: bound, problems } = collectProblems(() => bind(plan))
  const needs = checkPlanNeeds(plan, hostConfig)
  if (bound === undefined || needs.problems.length > 0) throw new PlanError([...problems, ...needs.problems])
  return { bound, skipped: new Set(needs.skipped.map(step => step.id)) }
}

/**
 * Finds the needs of a refused plan that the host config does not meet, as far as the plan can be read. Ignores a
 * health check without `plugin` if an installing step cannot be read, because such a check concerns everything that the
 * plan installs.
 */
export function needsProblems(
  { steps, hidesInstall }: ReadablePlan,
  hostConfig: HostConfig | undefined,
): PlanProblem[] {
  const isKnown = (step: PlanStep): boolean => !(hidesInstall && step.action === 'healthcheck' && !('plugin' in step))
  return [...checkPlanNeeds({ steps: steps.filter(isKnown) }, hostConfig).problems]
}

/**
 * Checks the templates that a plan takes from the artifact. Each must be a regular file of the artifact. None may be at
 * or below a kept path, because the host's own file would be read instead. `hasFile` receives the `from` of a step.
 * Throws PlanError `invalid_plan`.
 */
export function verifyTemplates(
  steps: readonly PlanStep[],
  keepPaths: readonly string[],
  hasFile: (from: string) => boolean,
): void {
  const problems = steps.flatMap(step => {
    if (step.action !== 'write_env') return []
    const path = step.from.split('/').slice(2).join('/')
    const kept = keepPaths.find(keep => path === keep || path.startsWith(`${keep}/`))
    if (kept === undefined && hasFile(step.from)) return []
    const reason =
      kept === undefined
        ? 'which is not a regular file of the version to install'
        : `which keep-paths (${kept}) leaves to the host`
    return [stepProblem(step, `from names ${step.from}, ${reason}`)]
  })
  if (problems.length > 0) throw new PlanError(problems)
}
