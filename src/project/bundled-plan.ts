import { join } from 'node:path'
import { ArtifactError } from '../core/errors.ts'
import { BUNDLED_PLAN_LIMITS } from '../core/limits.ts'
import { type Plan, parsePlan } from '../core/plan/plan.ts'
import { tryReadSmallFileSync } from '../install/files/read-small-file.ts'

/** The path of the plan, relative to the project's root. */
export const BUNDLED_PLAN = 'deployment/install.yaml'

/**
 * Reads the plan of the project whose files are in the folder `content`. Throws PlanError `invalid_plan` if the plan is
 * refused, and ArtifactError `invalid_manifest` if there is no plan, or if the plan is too large.
 */
export function readBundledPlan(content: string): Plan {
  const text = tryReadSmallFileSync(join(content, BUNDLED_PLAN), BUNDLED_PLAN_LIMITS.bytes)
  if (text !== undefined) return parsePlan(text, BUNDLED_PLAN, BUNDLED_PLAN_LIMITS)
  throw new ArtifactError(
    'invalid_manifest',
    `The project has no ${BUNDLED_PLAN} of at most ${BUNDLED_PLAN_LIMITS.bytes} bytes: nothing was installed. The publisher must correct this and seal the project again.`,
  )
}
