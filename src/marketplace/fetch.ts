import type { Log } from '../core/log.ts'
import { refuseDowngrade } from '../core/trust/version-rules.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { watchDownload } from '../install/deployment/download-progress.ts'
import { stateFor } from '../install/host/previous-install.ts'
import type { Tools } from '../install/transaction/context.ts'
import { isNotServed, type MarketplaceClient, type ServedArtifact } from './api/client.ts'
import { type ArtifactDeployment, originOf } from './deployment.ts'
import type { Target } from './prepare.ts'
import type { DeployRequest } from './request.ts'

/** An artifact as a hub served it, for the version that it was asked for. */
export interface ServedVersion {
  readonly served: ServedArtifact
  /** The version asked for; undefined when the hub chose. */
  readonly asked: string | undefined
  /** The version that the hub lists as its latest without serving it. */
  readonly unserved: string | undefined
}

export interface FetchedVersion extends ServedVersion {
  readonly target: Target
}

/** A fetch, and the open, empty file that it writes. */
export interface Fetching {
  readonly request: Pick<DeployRequest, 'version' | 'maxArtifactBytes' | 'downloadTimeoutMs' | 'signingSecret'>
  readonly client: MarketplaceClient
  readonly tools: Pick<Tools, 'log' | 'now' | 'runner'>
  readonly fd: number
  /** Hears which version is fetched, before it is; null when the hub chooses. What it throws ends the fetch. */
  readonly onVersion: (version: string | null) => Promise<void>
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
  const onVersion = async (version: string | null): Promise<void> => {
    await record.update({ version, version_source: version === null ? null : 'requested' })
    if (version === null || request.version !== 'latest' || request.allowDowngrade) return
    refuseDowngrade(version, stateFor(target.previous, originOf(deployment)))
  }
  return { target, ...(await fetchRequested({ request, client, tools, fd, onVersion })) }
}

/** The same, whatever is done with the artifact. Throws what the client throws, and DeploymentError `disk_full`. */
export async function fetchRequested(fetching: Fetching): Promise<ServedVersion> {
  const { request, client, tools, onVersion } = fetching
  if (request.version !== 'latest') {
    await onVersion(request.version)
    return { served: await fetchVersion(fetching, request.version), asked: request.version, unserved: undefined }
  }
  const latest = await client.readLatestVersion()
  tools.log.info(`The hub's latest version is ${latest}.`)
  await onVersion(latest)
  try {
    return { served: await fetchVersion(fetching, latest), asked: latest, unserved: undefined }
  } catch (error) {
    if (!isNotServed(error)) throw error
    await onVersion(null)
    return { served: await fetchVersion(fetching, 'latest'), asked: undefined, unserved: latest }
  }
}

/** Says so when a hub served another version than it lists or was asked for. */
export function noticeOtherVersion(log: Log, { asked, unserved }: ServedVersion, received: string): void {
  if (unserved !== undefined)
    log.notice(`The hub lists ${unserved} as latest but does not serve it; it served ${received} instead.`)
  if (asked !== undefined && !isSameVersion(received, asked))
    log.notice(`You asked for version ${asked}; the hub's header, which is not signed, says ${received}.`)
}

async function fetchVersion({ request, client, tools, fd }: Fetching, version: string): Promise<ServedArtifact> {
  return await client.fetchArtifact({
    version,
    fd,
    maxBytes: request.maxArtifactBytes,
    timeoutMs: request.downloadTimeoutMs,
    signingSecret: request.signingSecret,
    onProgress: watchDownload(tools),
  })
}
