import type { Artifact } from './artifact.ts'
import type { ArtifactCache } from './artifact-cache.ts'
import { type HubProcess, startHub } from './hub-process.ts'
import type { Releases } from './race.ts'
import type { Format, Workload } from './workloads.ts'

/** Creates both versions of a workload and serves them while `use` runs. */
export async function withReleases<T>(
  { workload, format, cache, folder }: { workload: Workload; format: Format; cache: ArtifactCache; folder: string },
  use: (releases: Releases) => Promise<T>,
): Promise<T> {
  const artifacts = { v1: await cache.get(workload, format, 1), v2: await cache.get(workload, format, 2) }
  const hub = await startHub(artifacts, folder)
  try {
    return await use({ 1: served(hub, artifacts.v1, 'v1'), 2: served(hub, artifacts.v2, 'v2') })
  } finally {
    await hub.stop()
  }
}

function served(hub: HubProcess, artifact: Artifact, name: string) {
  return { artifact, hubUrl: hub.urlOf(name) }
}
