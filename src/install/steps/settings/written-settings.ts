import { placeOfSettings } from '../../../core/plan/plan-binding.ts'
import type { PlanStep } from '../../../core/plan/plan-step.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { type PartName, placeName, settingsPath } from '../../host/layout.ts'
import { formerPlace } from '../../host/previous-install.ts'
import type { Deployment } from '../../transaction/context.ts'
import type { Part } from '../parts/part.ts'
import type { InstallOrder } from '../step-context.ts'
import { injectedEnvPath, willLackInjectedEnv } from './injected-env.ts'

/** True if a plan has a `write_env` step for a part. */
export function writesSettings(steps: readonly PlanStep[], part: PartName): boolean {
  return steps.some(step => step.action === 'write_env' && placeOfSettings(step) === placeName(part))
}

/**
 * Returns the absolute paths of the settings files that a plan's `write_env` steps will create for a part.
 * Omits settings that exist at the part's former place, because they move with the part.
 */
export function missingSettings(
  deployment: Pick<Deployment, 'layout' | 'keepPaths'>,
  { steps, origin }: Pick<InstallOrder, 'steps' | 'origin'>,
  part: Part,
): string[] {
  if (!writesSettings(steps, part)) return []
  const { layout } = deployment
  const places = [part, formerPlace(part.previous, origin)]
  const isThere = places.some(place => pathExistsSync(settingsPath(layout, place)))
  return [
    ...(isThere ? [] : [settingsPath(layout, part)]),
    ...(willLackInjectedEnv(deployment, part) ? [injectedEnvPath(layout, part)] : []),
  ]
}
