import { ConfigError } from '../core/errors.ts'
import { readInstalled } from '../install/host/installed/host-record.ts'
import { isFrom } from '../install/host/installed/origin.ts'
import { placeOf } from '../install/host/installed/row-place.ts'
import { type Place, placePath } from '../install/host/layout.ts'
import { type ArtifactDeployment, originOf } from './deployment.ts'
import type { ReadyArtifactPlan } from './plan.ts'

type CopyCheck = Pick<ArtifactDeployment<string>, 'layout' | 'request' | 'shelf'>

/**
 * Refuses a default plan if an earlier plan installed the same slug under a different id. The default plan would
 * install a second copy, whose id is the slug, and leave the first one as it is. Throws ConfigError `missing_input`.
 */
export function refuseSecondCopy(deployment: CopyCheck, { id, defaultPlan }: ReadyArtifactPlan): void {
  const other = defaultPlan && findOnlyCopy(deployment, id)
  if (other === undefined) return
  throw new ConfigError(
    'missing_input',
    `install-plan names no file, and the default plan would install ${deployment.request.slug} as ${id}, although an earlier plan has installed ${deployment.request.slug} here as ${placePath(other)}: name a plan for the id ${other.id} in install-plan. Nothing was changed.`,
  )
}

/** Warns if the operator's own plan would install a second copy: the plan's id may be a mistake. */
export function warnOfSecondCopy(
  deployment: CopyCheck & Pick<ArtifactDeployment, 'tools'>,
  { id, defaultPlan }: ReadyArtifactPlan,
): void {
  const other = defaultPlan === undefined ? findOnlyCopy(deployment, id) : undefined
  if (other === undefined) return
  deployment.tools.log.warning(
    `This plan installs ${deployment.request.slug} as ${id}, although it is installed here as ${placePath(other)}, which stays as it is: if the plan's id is a mistake, correct the id.`,
  )
}

/**
 * Returns the place of a copy of the slug with a different id; undefined if there is none, or if another copy has this
 * id.
 */
function findOnlyCopy({ layout, request, shelf }: CopyCheck, id: string): Place | undefined {
  const origin = originOf({ request })
  const copies = readInstalled(layout).filter(row => isFrom(row, origin) && placeOf(row).shelf === shelf)
  const [other] = copies
  return other === undefined || copies.some(row => row.id === id) ? undefined : placeOf(other)
}
