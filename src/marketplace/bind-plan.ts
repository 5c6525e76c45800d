import { type HostConfig, parseHostConfig } from '../core/host-config.ts'
import { type Plan, PlanError, parsePlan } from '../core/plan.ts'
import { checkPlanNeeds } from '../core/plan-needs.ts'
import type { PlanStep } from '../core/plan-step.ts'
import { type BoundPlan, bindPlanToArtifact } from '../core/single-artifact-plan.ts'
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
 * Throws PlanError `invalid_plan` or ConfigError `invalid_host_config` with every problem at its place.
 */
export function readyPlan(request: DeployRequest): ReadyPlan {
  const plan = parsePlan(request.plan.text, request.plan.path)
  const hostConfig = request.hostConfig && parseHostConfig(request.hostConfig.text, request.hostConfig.path)
  const bound = bindPlanToArtifact(plan, request)
  const needs = checkPlanNeeds(plan, hostConfig)
  if (needs.problems.length > 0) throw new PlanError(needs.problems)
  const skipped = new Set(needs.skipped.map(step => step.id))
  refuseUnsupported(
    plan,
    bound.steps.filter(step => !skipped.has(step.id)),
  )
  return { ...bound, plan, hostConfig, skipped }
}

/** Checks what the plan takes from the artifact: every template is a regular file of it. Throws PlanError `invalid_plan`. */
export function bindToTree(ready: ReadyPlan, tree: ExtractedTree): void {
  const files = new Set(tree.files.map(file => file.path))
  const problems = ready.steps.flatMap(step => {
    if (step.action !== 'write_env' || files.has(step.from.split('/').slice(2).join('/'))) return []
    const message = `step "${step.id}": from names ${step.from}, which is not a regular file of the artifact`
    return [{ message, file: ready.plan.file, line: step.line, column: step.column }]
  })
  if (problems.length > 0) throw new PlanError(problems)
}

function refuseUnsupported(plan: Plan, steps: readonly PlanStep[]): void {
  const problems = steps
    .filter(step => NEEDS_COMMANDS.has(step.action))
    .map(({ id, action, line, column }) => ({
      message: `step "${id}": ${action} runs a command of this host, which this version does not do yet: leave the step out, or write supervisor: none for start, stop, restart and healthcheck`,
      file: plan.file,
      line,
      column,
    }))
  if (problems.length > 0) throw new PlanError(problems)
}

const NEEDS_COMMANDS: ReadonlySet<PlanStep['action']> = new Set([
  'provision',
  'start',
  'stop',
  'restart',
  'healthcheck',
  'notify',
])
