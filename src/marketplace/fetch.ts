import { refuseDowngrade } from '../core/trust/version-rules.ts'
import { watchDownload } from '../install/deployment/download-progress.ts'
import { stateFor } from '../install/host/previous-install.ts'
import { isNotServed, type ServedArtifact } from './client.ts'
import { type ArtifactDeployment, originOf } from './deployment.ts'
import type { Target } from './prepare.ts'

export interface FetchedVersion {
  readonly target: Target
  readonly served: ServedArtifact
  /** The version asked for; undefined when the hub chose. */
  readonly asked: string | undefined
  /** The version that the hub lists as its latest without serving it. */
  readonly unserved: string | undefined
}

/**
 * Fetches the requested version; for `latest`, the one that the hub lists. Where a hub lists a version that it does not
 * serve, fetches what it serves as latest. Refuses a `latest` older than the installed version before the fetch. Throws
 * what the client throws, and DeploymentError `downgrade_refused` or `disk_full`.
 */
export async function fetchArtifact(
  deployment: ArtifactDeployment,
  target: Target,
  fd: number,
): Promise<FetchedVersion> {
  const { request, client, tools, record } = deployment
  if (request.version !== 'latest') {
    await record.update({ version: request.version, version_source: 'requested' })
    const served = await fetchVersion(deployment, request.version, fd)
    return { target, served, asked: request.version, unserved: undefined }
  }
  const latest = await client.readLatestVersion()
  tools.log.info(`The hub's latest version is ${latest}.`)
  await record.update({ version: latest, version_source: 'requested' })
  if (!request.allowDowngrade) refuseDowngrade(latest, stateFor(target.previous, originOf(deployment)))
  try {
    const served = await fetchVersion(deployment, latest, fd)
    return { target, served, asked: latest, unserved: undefined }
  } catch (error) {
    if (!isNotServed(error)) throw error
    await record.update({ version: null, version_source: null })
    const served = await fetchVersion(deployment, 'latest', fd)
    return { target, served, asked: undefined, unserved: latest }
  }
}

async function fetchVersion(
  { request, client, tools }: ArtifactDeployment,
  version: string,
  fd: number,
): Promise<ServedArtifact> {
  return await client.fetchArtifact({
    version,
    fd,
    maxBytes: request.maxArtifactBytes,
    timeoutMs: request.downloadTimeoutMs,
    signingSecret: request.signingSecret,
    onProgress: watchDownload(tools),
  })
}
