import { ConfigError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { type BoundPlan, bindingProblems, bindPlanToArtifact } from '../core/plan/binding.ts'
import { buildDefaultPlan, type DefaultPlan } from '../core/plan/default-plan.ts'
import { type HostConfig, HostConfigError, parseHostConfigSlowly } from '../core/plan/host-config.ts'
import {
  type Plan,
  PlanError,
  type PlanProblem,
  parsePlanSlowly,
  type ReadablePlan,
  readablePlan,
  wholePlan,
} from '../core/plan/plan.ts'
import { needsProblems, readyPlan, verifyTemplates } from '../core/plan/ready.ts'
import { type Collected, collectProblemsSlowly, firstProblems } from '../core/yaml/problems.ts'
import type { DeployRequest } from './deployment.ts'

interface ReadySteps extends BoundPlan {
  readonly hostConfig: HostConfig | undefined
  /**
   * The ids of the steps that are skipped because the host config has `supervisor: none`, or no command for their
   * event.
   */
  readonly skipped: ReadonlySet<string>
}

export type ReadyArtifactPlan = WithDefault<ReadySteps>

/** The operator's files, and the plugin or service that they are for. */
export type PlanSources = Pick<DeployRequest, 'slug' | 'kind' | 'plan' | 'hostConfig'>

/**
 * Returns the operator's plan, or else the default plan, bound to the artifact and to what this host can do. Runs
 * before anything is fetched (contract 4.3, rule 6). Pauses at each `yield`. Throws PlanError `invalid_plan` with the
 * positions of the problems, or HostConfigError `invalid_host_config` if only the host config is wrong. If there is no
 * plan and the default plan does not fit, throws ConfigError `invalid_plan`.
 */
export function* readyArtifactPlan(request: PlanSources): Generator<void, ReadyArtifactPlan> {
  const { plan, hostConfig } = yield* parseSources(request)
  yield
  const ready = (any: Plan): ReadySteps => {
    const { bound, skipped } = readyPlan(any, hostConfig, () => bindPlanToArtifact(any, request))
    return { ...bound, hostConfig, skipped }
  }
  return plan === undefined ? readyDefaultPlan(request, hostConfig, ready) : { ...ready(plan), defaultPlan: undefined }
}

/** Checks the files that the plan takes from the artifact. Throws PlanError `invalid_plan`. */
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

/** Parses both files. If one is refused, the error also lists the problems of the plan that later checks would find. */
function* parseSources(request: PlanSources): Generator<void, ParsedSources> {
  const { plan: planFile, hostConfig: configFile } = request
  const plan = yield* collectProblemsSlowly(planFile && parsePlanSlowly(planFile.text, planFile.path))
  const config = yield* collectProblemsSlowly(configFile && parseHostConfigSlowly(configFile.text, configFile.path))
  if (plan.problems.length + config.problems.length === 0) return { plan: plan.value, hostConfig: config.value }
  const readable = yield* readAsFarAsPossible(plan)
  const ofPlan = [...plan.problems, ...(readable === undefined ? [] : misfits(readable, request, config))]
  throw ofPlan.length > 0 ? new PlanError([...ofPlan, ...config.problems]) : new HostConfigError(config.problems)
}

function* readAsFarAsPossible({ value, error }: Collected<Plan>): Generator<void, ReadablePlan | undefined> {
  if (value !== undefined) return wholePlan(value)
  return error instanceof PlanError && error.source !== undefined ? yield* readablePlan(error.source) : undefined
}

/** The problems that the plan has with the artifact and, if the host config is valid, with this host. */
function misfits(plan: ReadablePlan, request: PlanSources, config: Collected<HostConfig>): PlanProblem[] {
  const needs = config.problems.length === 0 ? needsProblems(plan, config.value) : []
  const found = [...bindingProblems(plan, request), ...needs]
  return firstProblems(found.map(problem => ({ at: problem, sentence: () => problem.message })))
}

/** A plan, and the default plan that it comes from if the operator has not written a plan. */
type WithDefault<Ready> = Ready & { readonly defaultPlan: DefaultPlan | undefined }

/**
 * Binds the default plan with `ready`. Throws ConfigError `invalid_plan` with the reasons if the plan does not fit. The
 * error is not a PlanError, because its problems are not in any file of the operator's.
 */
function readyDefaultPlan<Ready>(
  artifact: Pick<DeployRequest, 'slug' | 'kind'>,
  hostConfig: HostConfig | undefined,
  ready: (plan: Plan) => Ready,
): WithDefault<Ready> {
  const defaultPlan = buildDefaultPlan(artifact, hostConfig)
  try {
    return { ...ready(defaultPlan.plan), defaultPlan }
  } catch (error) {
    if (!(error instanceof PlanError)) throw error
    const reasons = error.problems.map(({ message }) => message).join('; ')
    throw new ConfigError(
      'invalid_plan',
      `install-plan names no file, and the default plan does not fit: ${reasons}. Write a plan that fits, and name its path in install-plan.`,
    )
  }
}

/** Logs the default plan in full, and the reason for it. Logs nothing for a plan that the operator has written. */
export function announceDefaultPlan({ defaultPlan }: WithDefault<object>, log: Log): void {
  if (defaultPlan === undefined) return
  log.info(defaultPlan.reason)
  for (const line of defaultPlan.text.trimEnd().split('\n')) log.info(line)
}
