import type { Log } from '../core/log.ts'
import { bytesInWords } from '../core/quantities.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { watchDownload } from '../install/deployment/download-progress.ts'
import type { Tools } from '../install/transaction/context.ts'
import type { MarketplaceClient, ServedArtifact } from './api/client.ts'
import type { ArtifactDeployment } from './deployment.ts'
import type { DeployRequest } from './request.ts'
import type { DeployedVersion, VersionClaims } from './version.ts'

/** An artifact as a hub served it, and the claims about its version. */
export interface ServedVersion extends VersionClaims {
  readonly served: ServedArtifact
}

/** A request for an artifact, and the open, empty file to write the artifact to. */
export interface Fetching {
  readonly request: Pick<DeployRequest, 'version' | 'maxArtifactBytes' | 'downloadTimeoutMs' | 'signingSecret'>
  readonly client: MarketplaceClient
  readonly tools: Pick<Tools, 'log' | 'now' | 'runner'>
  readonly fd: number
}

/**
 * Fetches the requested version, and records it. For `latest`, records the version in the hub's header, if the header
 * names one.
 */
export async function fetchArtifact(deployment: ArtifactDeployment, fd: number): Promise<ServedVersion> {
  const { request, client, tools, record } = deployment
  if (request.version !== 'latest') await record.update({ version: request.version, version_source: 'requested' })
  const found = await fetchRequested({ request, client, tools, fd })
  const { headerVersion } = found.served
  if (found.asked === undefined && headerVersion !== undefined)
    await record.update({ version: headerVersion, version_source: 'header' })
  const version = record.facts.version ?? found.listed ?? request.version
  tools.log.did(
    `${request.slug} ${version} from ${new URL(request.bases[request.kind === 'plugin' ? 'hub' : 'services']).host}, ${bytesInWords(found.served.artifact.size)}`,
  )
  return found
}

/**
 * Fetches the requested version without recording it. With `latest`, the hub chooses the version. If the hub holds back
 * or has yanked the version that it lists as its latest, it may serve another one. For a private plugin, the hub lists
 * no version. Throws what the client throws.
 */
export async function fetchRequested(fetching: Fetching): Promise<ServedVersion> {
  const { version } = fetching.request
  const isLatest = version === 'latest'
  const listed = isLatest ? await readListed(fetching) : undefined
  const served = await fetchVersion(fetching, version)
  return { served, asked: isLatest ? undefined : version, listed }
}

async function readListed({ client, tools: { log } }: Fetching): Promise<string | undefined> {
  const answer = await client.readListedVersion()
  if ('version' in answer) log.info(`The hub lists ${answer.version} as its latest version.`)
  else
    log.info(
      `Without a key, the hub lists no version (it answered ${answer.status}). This run asks for the artifact with the key.`,
    )
  return 'version' in answer ? answer.version : undefined
}

/**
 * Logs a notice if the hub served a version other than the requested or listed one, or did not say which version it
 * served.
 */
export function noticeOtherVersion(log: Log, { asked, listed }: ServedVersion, decided: DeployedVersion): void {
  const { version, source } = decided
  if (asked !== undefined && !isSameVersion(version, asked))
    log.notice(`The requested version is ${asked}, but the hub's header, which is not signed, says ${version}.`)
  if (listed !== undefined && !isSameVersion(version, listed))
    log.notice(
      `The hub lists ${listed} as its latest version, but served ${version}: the hub may be holding ${listed} back for review, or may have yanked ${listed}.`,
    )
  if (asked === undefined && source === 'requested')
    log.notice(
      `The hub does not say which version it served: this run assumes ${version}, which the hub lists as its latest.`,
    )
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
