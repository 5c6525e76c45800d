import { ConfigError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { buildDefaultPlan, type DefaultPlan } from '../core/plan/default-plan.ts'
import type { HostConfig } from '../core/plan/host-config.ts'
import { type Plan, PlanError } from '../core/plan/plan.ts'
import type { DeployRequest } from './request.ts'

/** A plan, and the default plan that it comes from if the operator has not written a plan. */
export type WithDefault<Ready> = Ready & { readonly defaultPlan: DefaultPlan | undefined }

/**
 * Binds the default plan with `ready`. Throws ConfigError `invalid_plan` with the reasons if the plan does not fit. The
 * error is not a PlanError, because its problems are not in any file of the operator's.
 */
export function readyDefaultPlan<Ready>(
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
