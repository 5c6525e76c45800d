import { ArtifactError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { versionSchema } from '../../core/identifiers.ts'
import type { FetchedArtifact } from '../../core/trust/signature.ts'
import type { ReportLimits } from '../../install/reports/report-sender.ts'
import { isTransientStatus } from '../../net/retries.ts'
import type { JsonAnswer, Wire } from '../../net/wire.ts'
import { detailSchema, type ReportBody } from './bodies.ts'
import { type HubBases, type NamedBase, namedBase } from './hub-bases.ts'
import { OWN_INPUTS } from './input-names.ts'
import { type MarketplaceSubject, refusal, shownBase } from './refusal.ts'

export type { MarketplaceSubject } from './refusal.ts'

const DETAIL_TIMEOUT_MS = 60_000

/** The facts about a plugin or service and its hub that a client needs. */
export interface MarketplaceAccess extends MarketplaceSubject {
  bases: HubBases
  apiKey: string
}

export interface ArtifactRequest {
  version: string
  /** An open, empty file that belongs to the caller. */
  fd: number
  maxBytes: number
  timeoutMs: number
  signingSecret: string
  onProgress: (received: number, total: number | undefined) => void
}

/** An artifact as the hub served it, not verified in any way. */
export interface ServedArtifact {
  artifact: FetchedArtifact
  /** HMAC-SHA256 of the bytes under the signing secret. */
  hmac: Buffer
  signatureHeader: string | undefined
  /** From `X-Plugin` / `X-Service: name@version`, which the signature does not cover. */
  headerVersion: string | undefined
  /** From `X-Repo: owner/repo@tag`, for information only. */
  repo: string | undefined
}

/** The answer of the detail route: the version, or the status of a 4xx, for example for a private plugin. */
export type ListedVersion = { readonly version: string } | { readonly status: number }

export interface MarketplaceClient {
  /**
   * Asks the public detail route, without a key, for the version that the hub lists as its latest (contract 4.3, rule
   * 1).
   */
  readListedVersion(): Promise<ListedVersion>
  /** Fetches one version's artifact with the key (contract 4.3, rule 2). `latest` lets the hub choose. */
  fetchArtifact(request: ArtifactRequest): Promise<ServedArtifact>
  /** Sends one report (contract 4.1). Resolves with the answer even if it is a refusal. */
  sendReport(body: ReportBody, limits: ReportLimits): Promise<JsonAnswer>
}

/**
 * The client side of the marketplace contract for one plugin or service. All calls throw what the wire throws. The
 * detail route also throws ArtifactError `no_published_version`, `bad_response` or `artifact_unavailable`. Fetching
 * also throws AuthenticationError `authentication_failed` for 401 and 403, ArtifactError `not_found` for 404 and
 * `artifact_unavailable` for other refusals.
 */
export function createMarketplaceClient(wire: Wire, subject: MarketplaceAccess): MarketplaceClient {
  const { bases, kind, slug, apiKey, inputs = OWN_INPUTS } = subject
  const base = namedBase(bases, kind === 'plugin' ? 'hub' : 'services', inputs)
  const detailUrl = routeOf(base.url, `${kind}s`, slug)
  const credentials = { 'X-API-Key': apiKey }
  return {
    async readListedVersion() {
      const answer = await wire.requestJson({
        method: 'GET',
        url: detailUrl,
        retry: 'transient',
        timeoutMs: DETAIL_TIMEOUT_MS,
      })
      const { status } = answer
      if (status === 200) return { version: parseLatestVersion(answer, subject, base) }
      if (status < 400 || isTransientStatus(status))
        throw refusal(answer, subject, { name: 'the version', base, isSigned: false })
      return { status }
    },
    async fetchArtifact(request) {
      const answer = await wire.download({
        url: `${detailUrl}/install?version=${encodeURIComponent(request.version)}`,
        credentials,
        fd: request.fd,
        maxBytes: request.maxBytes,
        timeoutMs: request.timeoutMs,
        hmacSecret: request.signingSecret,
        onProgress: request.onProgress,
      })
      const { version } = request
      if (!answer.ok) throw refusal(answer, subject, { name: nameOf(version), base, isSigned: true, version })
      return {
        artifact: { fd: request.fd, size: answer.size, sha256: answer.sha256, signedFor: inputs },
        hmac: answer.hmacSha256 as Buffer,
        signatureHeader: answer.headers['x-signature'],
        headerVersion: parseHeaderVersion(answer.headers[kind === 'plugin' ? 'x-plugin' : 'x-service']),
        repo: parseRepo(answer.headers['x-repo']),
      }
    },
    sendReport: (body, { retry, ...limits }) =>
      wire.requestJson({
        method: 'POST',
        url: routeOf(bases.deployments, 'deployments', 'report'),
        credentials,
        body,
        retry: retry ? 'transient' : 'never',
        ...limits,
      }),
  }
}

/** The URL of a route below a base. */
export function routeOf(base: string, ...parts: string[]): string {
  return [base.replace(/\/+$/, ''), ...parts.map(encodeURIComponent)].join('/')
}

function parseLatestVersion(
  { body, foreign }: Pick<JsonAnswer, 'body' | 'foreign'>,
  { kind, slug }: MarketplaceSubject,
  base: NamedBase,
): string {
  const parsed = detailSchema.safeParse(body)
  if (!parsed.success) {
    throw new ArtifactError(
      'bad_response',
      `The hub's record of ${kind} ${slug} at ${shownBase(base)} is not a JSON object, or its latest_version is not text: check ${base.input}.`,
    )
  }
  const latest = parsed.data.latest_version?.trim()
  if (!latest) {
    throw new ArtifactError(
      'no_published_version',
      `The hub names no latest version of ${kind} ${slug}: publish a version, or name one.`,
    )
  }
  if (!versionSchema.safeParse(latest).success) {
    throw new ArtifactError(
      'bad_response',
      `The hub's latest_version of ${kind} ${slug} is ${foreign ? 'text that is' : `"${cleanForeignText(latest, 60)}", which is`} not a version: report this to the hub's operator.`,
    )
  }
  return latest
}

function nameOf(version: string): string {
  return version === 'latest' ? 'the latest version' : `version ${version}`
}

function parseHeaderVersion(header: string | undefined): string | undefined {
  return versionSchema.safeParse(header?.match(/@([^@]*)$/)?.[1]).data
}

function parseRepo(header: string | undefined): string | undefined {
  return header !== undefined && /^[\w.-]+\/[\w.-]+(@[\w./+-]+)?$/.test(header) && header.length <= 300
    ? header
    : undefined
}
