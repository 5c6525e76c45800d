import { ConfigError } from '../core/errors.ts'
import { readInstalled } from '../install/host/installed/host-record.ts'
import { isFrom } from '../install/host/installed/origin.ts'
import { placeOf } from '../install/host/installed/row-place.ts'
import { placePath } from '../install/host/layout.ts'
import { type ArtifactDeployment, originOf } from './deployment.ts'
import type { ReadyArtifactPlan } from './plan.ts'

/**
 * Refuses a default plan if an earlier plan installed the same slug under a different id. The default plan would
 * install it again under the slug and leave the other copy as it is. Throws ConfigError `missing_input`.
 */
export function refuseSecondCopy(
  deployment: Pick<ArtifactDeployment<string>, 'layout' | 'request' | 'shelf'>,
  { id, defaultPlan }: ReadyArtifactPlan,
): void {
  if (defaultPlan === undefined) return
  const { layout, request, shelf } = deployment
  const copies = readInstalled(layout).filter(row => isFrom(row, originOf(deployment)) && placeOf(row).shelf === shelf)
  const [other] = copies
  if (other === undefined || copies.some(row => row.id === id)) return
  throw new ConfigError(
    'missing_input',
    `install-plan names no file, and the default plan would install ${request.slug} as ${id}, although an earlier plan has installed it here as ${placePath(placeOf(other))}: name a plan with that id in install-plan. Nothing was changed.`,
  )
}
