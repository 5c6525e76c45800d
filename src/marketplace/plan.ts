import { collectProblems, collectProblemsSlowly, MAX_REPORTED_PROBLEMS } from '../core/document/source-problem.ts'
import { ConfigError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { buildDefaultPlan, type DefaultPlan } from '../core/plan/default-plan.ts'
import { type HostConfig, HostConfigError, parseHostConfigSlowly } from '../core/plan/host-config.ts'
import { type Plan, PlanError, parsePlanSlowly } from '../core/plan/plan.ts'
import type { ReadablePlan } from '../core/plan/readable-plan.ts'
import { needsProblems, readyPlan, verifyTemplates } from '../core/plan/ready-plan.ts'
import { type BoundPlan, bindingProblems, bindPlanToArtifact } from '../core/plan/single-artifact-plan.ts'
import type { DeployRequest } from './request.ts'

export interface ReadyArtifactPlan extends BoundPlan {
  hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` in the host config leaves out. */
  skipped: ReadonlySet<string>
  /** What stands in for a plan that the operator has not written. */
  defaultPlan: DefaultPlan | undefined
}

/** The operator's files, and what they are for. */
export type PlanSources = Pick<DeployRequest, 'slug' | 'kind' | 'plan' | 'hostConfig'>

/**
 * The operator's plan, else the default plan, bound to what is deployed and to what this host can do, before anything
 * is fetched (contract 4.3, rule 6). Pauses at each `yield`. Throws PlanError `invalid_plan` (or HostConfigError `invalid_host_config` when only that file is wrong)
 * with the position of every problem; ConfigError `invalid_plan` where the default plan does not fit.
 */
export function* readyArtifactPlan(request: PlanSources): Generator<void, ReadyArtifactPlan> {
  const { plan, hostConfig } = yield* parseSources(request)
  yield
  if (plan === undefined) return readyDefaultPlan(request, hostConfig)
  return { ...ready(plan, request, hostConfig), defaultPlan: undefined }
}

/** Logs the default plan in full, and where it comes from. Logs nothing of a plan that the operator has written. */
export function announceDefaultPlan({ defaultPlan }: ReadyArtifactPlan, log: Log): void {
  if (defaultPlan === undefined) return
  log.info(defaultPlan.reason)
  for (const line of defaultPlan.text.trimEnd().split('\n')) log.info(line)
}

/** Checks what the plan takes from the artifact, which has these regular files. Throws PlanError `invalid_plan`. */
export function bindToFiles(
  { steps }: ReadyArtifactPlan,
  hasFile: (path: string) => boolean,
  keepPaths: readonly string[],
): void {
  verifyTemplates(steps, keepPaths, from => hasFile(from.split('/').slice(2).join('/')))
}

interface ParsedSources {
  readonly plan: Plan | undefined
  readonly hostConfig: HostConfig | undefined
}

function* parseSources(request: PlanSources): Generator<void, ParsedSources> {
  const { plan: file, hostConfig: source } = request
  const plan = file && (yield* collectProblemsSlowly(parsePlanSlowly(file.text, file.path)))
  const hostConfig = source && (yield* collectProblemsSlowly(parseHostConfigSlowly(source.text, source.path)))
  const ofConfig = hostConfig?.problems ?? []
  const isConfigKnown = ofConfig.length === 0
  const needs = (readable: ReadablePlan) => (isConfigKnown ? needsProblems(readable, hostConfig?.value) : [])
  if (plan && plan.problems.length > 0) {
    yield
    const readable = plan.error instanceof PlanError ? plan.error.readable : undefined
    const further = readable === undefined ? [] : [...bindingProblems(readable, request), ...needs(readable)]
    throw new PlanError([...plan.problems, ...further.slice(0, MAX_REPORTED_PROBLEMS), ...ofConfig])
  }
  if (!isConfigKnown) {
    const { value } = plan ?? {}
    const unbound = value === undefined ? [] : collectProblems(() => bindPlanToArtifact(value, request)).problems
    throw unbound.length > 0 ? new PlanError([...unbound, ...ofConfig]) : new HostConfigError(ofConfig)
  }
  return { plan: plan?.value, hostConfig: hostConfig?.value }
}

function ready(plan: Plan, request: PlanSources, hostConfig: HostConfig | undefined) {
  const { bound, skipped } = readyPlan(plan, hostConfig, () => bindPlanToArtifact(plan, request))
  return { ...bound, hostConfig, skipped }
}

/** The operator has no file in which to look for the lines of its problems. */
function readyDefaultPlan(request: PlanSources, hostConfig: HostConfig | undefined): ReadyArtifactPlan {
  const defaultPlan = buildDefaultPlan(request, hostConfig)
  try {
    return { ...ready(defaultPlan.plan, request, hostConfig), defaultPlan }
  } catch (error) {
    if (!(error instanceof PlanError)) throw error
    const reasons = error.problems.map(({ message }) => message).join('; ')
    throw new ConfigError(
      'invalid_plan',
      `install-plan names no file, and the default plan does not fit: ${reasons}. Write a plan that does, and name it in install-plan.`,
    )
  }
}
