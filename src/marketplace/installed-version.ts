import { readInstalled } from '../install/host/installed/host-record.ts'
import type { ArtifactDeployment } from './deployment.ts'

/**
 * Records the installed version of this slug before the plan says where the slug is installed, so that a refused run
 * can report that version.
 */
export async function noteInstalledVersion({ layout, request, record }: ArtifactDeployment): Promise<void> {
  const installed = readInstalled(layout).find(
    ({ contract, kind, slug }) => contract === 'marketplace' && kind === request.kind && slug === request.slug,
  )
  await record.update({ previous_version: installed?.version ?? null })
}
