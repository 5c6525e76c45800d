import { readInstalled } from '../install/host/installed/host-record.ts'
import type { ArtifactDeployment } from './deployment.ts'

/**
 * Records which version of this slug is installed before the plan says where it goes, so that a refused run reports it.
 */
export async function noteInstalledVersion({ layout, request, record }: ArtifactDeployment): Promise<void> {
  const installed = readInstalled(layout).find(
    ({ contract, kind, slug }) => contract === 'marketplace' && kind === request.kind && slug === request.slug,
  )
  await record.update({ previous_version: installed?.version ?? null })
}
