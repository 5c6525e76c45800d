import type { Log } from '../core/log.ts'
import { type ArtifactRequest, isNotServed, type ServedArtifact } from './client.ts'
import type { Run } from './run.ts'
import { refuseDowngrade } from './served-version.ts'

const PROGRESS_EVERY_MS = 2000

export interface FetchedVersion {
  served: ServedArtifact
  /** The version asked for; undefined when the hub chose. */
  asked: string | undefined
}

/**
 * Fetches the version asked for; for `latest`, the one that the hub lists. A hub may list a version that it does not
 * serve: then once more what it serves as latest. A `latest` older than the installed version is refused before the fetch.
 */
export async function fetchArtifact(run: Run, fd: number, installedVersion: string | null): Promise<FetchedVersion> {
  const { request, client, tools } = run
  if (request.version !== 'latest') {
    await run.record.update({ version: request.version, version_source: 'requested' })
    return { served: await client.fetchArtifact(artifactRequest(run, request.version, fd)), asked: request.version }
  }
  const latest = await client.readLatestVersion()
  tools.log.info(`The hub's latest version is ${latest}.`)
  await run.record.update({ version: latest, version_source: 'requested' })
  if (!request.allowDowngrade) refuseDowngrade(latest, installedVersion)
  try {
    return { served: await client.fetchArtifact(artifactRequest(run, latest, fd)), asked: latest }
  } catch (error) {
    if (!isNotServed(error)) throw error
    const served = await client.fetchArtifact(artifactRequest(run, 'latest', fd))
    tools.log.notice(
      `The hub lists ${latest} as latest but does not serve it; it served ${served.headerVersion ?? 'a version that it did not name'} instead.`,
    )
    return { served, asked: undefined }
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
    onProgress: progressLog(tools.log, tools.now),
  }
}

function progressLog(log: Log, now: () => Date): ArtifactRequest['onProgress'] {
  let toldAt = now().getTime()
  return (received, total) => {
    if (now().getTime() - toldAt < PROGRESS_EVERY_MS) return
    toldAt = now().getTime()
    log.info(`${received} of ${total ?? 'an unknown number of'} bytes.`)
  }
}
