import { refuseDowngrade } from '../core/trust/version-rules.ts'
import { watchDownload } from '../install/deployment/download-progress.ts'
import { type ArtifactRequest, isNotServed, type ServedArtifact } from './client.ts'
import type { Run } from './run.ts'

export interface FetchedVersion {
  served: ServedArtifact
  /** The version asked for; undefined when the hub chose. */
  asked: string | undefined
  /** The version that the hub lists as its latest without serving it. */
  unserved: string | undefined
}

/**
 * Fetches the version asked for; for `latest`, the one that the hub lists. A hub may list a version that it does not
 * serve: then once more what it serves as latest. A `latest` older than the installed version is refused before the
 * fetch. Throws what the client throws, and DeploymentError `downgrade_refused` or `disk_full`.
 */
export async function fetchArtifact(run: Run, fd: number, installedVersion: string | null): Promise<FetchedVersion> {
  const { request, client, tools } = run
  if (request.version !== 'latest') {
    await run.record.update({ version: request.version, version_source: 'requested' })
    const served = await client.fetchArtifact(artifactRequest(run, request.version, fd))
    return { served, asked: request.version, unserved: undefined }
  }
  const latest = await client.readLatestVersion()
  tools.log.info(`The hub's latest version is ${latest}.`)
  await run.record.update({ version: latest, version_source: 'requested' })
  if (!request.allowDowngrade) refuseDowngrade(latest, installedVersion)
  try {
    const served = await client.fetchArtifact(artifactRequest(run, latest, fd))
    return { served, asked: latest, unserved: undefined }
  } catch (error) {
    if (!isNotServed(error)) throw error
    await run.record.update({ version: null, version_source: null })
    const served = await client.fetchArtifact(artifactRequest(run, 'latest', fd))
    return { served, asked: undefined, unserved: latest }
  }
}

function artifactRequest(run: Run, version: string, fd: number): ArtifactRequest {
  const { request, tools } = run
  return {
    version,
    fd,
    maxBytes: request.maxArtifactBytes,
    timeoutMs: request.downloadTimeoutMs,
    signingSecret: request.signingSecret,
    onProgress: watchDownload(tools),
  }
}
