import { z } from 'zod/mini'
import { ArtifactError, AuthenticationError, type DeployError, SignatureError, toDeployError } from '../core/errors.ts'
import { type Kind, versionSchema } from '../core/identifiers.ts'
import { cleanForeignText } from '../core/text.ts'
import { type FetchedArtifact, strayEnds } from '../core/trust/signature.ts'
import { withoutLeadingV } from '../core/trust/versions.ts'
import type { LocalReport } from '../install/reports/local-report.ts'
import { type Delivery, type ReportLimits, type ReportSender, refused } from '../install/reports/sender.ts'
import { TransientError } from '../net/exchange.ts'
import { attemptsBefore, isTransientStatus } from '../net/retries.ts'
import { readReasonFields, reasonText } from '../net/settings.ts'
import type { DownloadAnswer, JsonAnswer, Wire } from '../net/wire.ts'

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
type ListedVersion = { readonly version: string } | { readonly status: number }

export interface MarketplaceClient {
  /**
   * Asks the public detail route, without a key, for the version that the hub lists as its latest (contract 4.3, rule
   * 1).
   */
  readListedVersion(): Promise<ListedVersion>
  /** Fetches one version's artifact with the key (contract 4.3, rule 2). `latest` lets the hub choose. */
  fetchArtifact(request: ArtifactRequest): Promise<ServedArtifact>
  /** Sends one report (contract 4.1). Resolves with the answer even if it is a refusal. */
  sendReport(body: MarketplaceReportBody, limits: ReportLimits): Promise<JsonAnswer>
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
        throw marketplaceRefusal(answer, subject, { name: 'the version', base, isSigned: false })
      return { status }
    },
    async fetchArtifact(request) {
      const answer = await wire.download({
        url: `${detailUrl}/install?version=${encodeURIComponent(request.version)}`,
        credentials,
        // The hub may redirect to storage that does not send these.
        originHeaders: ['x-signature', 'x-plugin', 'x-service', 'x-repo'],
        fd: request.fd,
        maxBytes: request.maxBytes,
        timeoutMs: request.timeoutMs,
        hmacSecret: request.signingSecret,
        onProgress: request.onProgress,
      })
      const { version } = request
      if (!answer.ok)
        throw marketplaceRefusal(answer, subject, { name: versionInWords(version), base, isSigned: true, version })
      refusePage(answer, base)
      const signedFor = { ...inputs, stray: strayEnds(request.signingSecret) }
      return {
        artifact: { fd: request.fd, size: answer.size, sha256: answer.sha256, signedFor },
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

function versionInWords(version: string): string {
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

/** The detail record. Everything but the latest version is ignored (docs/contracts.md, "Detail route"). */
const detailSchema = z.object({ latest_version: z.nullish(z.string()) })

/** The body of `POST /deployments/report`. Times are ISO 8601, UTC. */
interface MarketplaceReportBody {
  kind: string
  slug: string
  version: string
  status: 'success' | 'failed' | 'rolled_back'
  started_at: string
  completed_at: string
  host_id: string
  repo: string | null
  error_message: string | null
}

/**
 * Returns the reason in the JSON body of a marketplace error: `error`, else `detail`, else `message`. A field with text
 * takes precedence over a field with any other value.
 */
function parseErrorText(body: unknown): string | undefined {
  const fields = readReasonFields(body)
  return reasonText(fields.find(field => typeof field === 'string' && field !== '') ?? fields.find(reasonText))
}

export interface MarketplaceSubject {
  kind: Kind
  slug: string
  /** Set if the action's inputs have other names than those of the deploy action. */
  inputs?: InputNames
}

/** The object that a request fetches, the base URL of the request, and whether the hub signs the object. */
interface Wanted {
  readonly name: string
  readonly base: NamedBase
  readonly isSigned: boolean
  /** Set for the artifact of a version. */
  readonly version?: string
  /** Advice for a refused credential. */
  readonly hint?: string
}

type Refused = Pick<JsonAnswer, 'status' | 'body' | 'foreign'>

/**
 * Builds the error for an answer other than 200, with the hub's reason: AuthenticationError `authentication_failed` for
 * 401 and 403, ArtifactError `not_found` for 404, else `artifact_unavailable`. The last is a TransientError if another
 * attempt may get another answer.
 */
export function marketplaceRefusal(answer: Refused, subject: MarketplaceSubject, wanted: Wanted): DeployError {
  const { status } = answer
  const { kind, slug, inputs = OWN_INPUTS } = subject
  const asked = `${wanted.name} of ${kind} ${slug} from ${shownBase(wanted.base)}`
  const message = `Fetching ${asked}: ${saidBy(answer)}. ${remedyFor(answer, wanted, inputs)}`
  if (status === 401 || status === 403) return new AuthenticationError('authentication_failed', message)
  if (isTransientStatus(status)) return new TransientError('artifact_unavailable', message, { sent: true })
  return new ArtifactError(status === 404 ? 'not_found' : 'artifact_unavailable', message)
}

/**
 * Returns, for example, `the hub answered 403 (its reason)`. Leaves out a reason that another server gave: messages are
 * sent to the hub, which must not learn what other servers answer.
 */
function saidBy({ status, body, foreign }: Refused): string {
  const reason = foreign ? undefined : parseErrorText(body)
  return `the hub answered ${status}${reason === undefined ? '' : ` (${cleanForeignText(reason)})`}`
}

/** Returns the origin and path of a base URL. */
function shownBase({ url }: Pick<NamedBase, 'url'>): string {
  const { origin, pathname } = new URL(url)
  return (origin + pathname).replace(/\/+$/, '')
}

function remedyFor(answer: Refused, { isSigned, base, version, hint = '' }: Wanted, inputs: InputNames): string {
  const { status, foreign } = answer
  switch (status) {
    case 400:
      return isSigned && !foreign && mayLackSigningKey(answer)
        ? `The owner of this ${inputs.apiKey} may have no signing key on the hub: create one there, and set ${inputs.signingSecret} to its secret. Otherwise ask the hub's operator.`
        : "Ask the hub's operator."
    case 401:
      return `Check ${inputs.apiKey}, which may be wrong, revoked or expired.${hint}`
    case 403:
      if (inputs.apiKey === 'access-token') return 'Check access-token, which may not allow this request.'
      if (inputs.apiKey.startsWith('sources-'))
        return `Check ${inputs.apiKey}: a key may be bound to one kind and slug; give each such slug its own line in sources-api-keys.`
      return `Check ${inputs.apiKey}: a key may be bound to one kind and slug; in that case, a matrix over slugs needs a key for each slug.`
    case 404:
      return `Check ${inputs.subject} and ${base.input}.${hintAtBareVersion(version)}`
    default:
      return isTransientStatus(status) ? "Try again later, or ask the hub's operator." : "Ask the hub's operator."
  }
}

/** A hub that gives another reason, such as a missing tag, does not mean the key. */
function mayLackSigningKey({ body }: Refused): boolean {
  const reason = parseErrorText(body)
  return reason === undefined || /sign|secret|key/i.test(reason)
}

/** A tag `v1.2.0` is usually published as the version 1.2.0. */
function hintAtBareVersion(version = ''): string {
  const bare = withoutLeadingV(version)
  return bare === version ? '' : ` Most versions are published without the v: try ${bare}.`
}

/** A login page or a proxy answers with HTML. Throws SignatureError `missing_signature` for an unsigned page. */
function refusePage({ headers, server }: DownloadAnswer, { input }: NamedBase): void {
  if (headers['x-signature'] !== undefined || !/^text\/html\b/i.test(headers['content-type'] ?? '')) return
  throw new SignatureError(
    'missing_signature',
    `${server ?? 'The hub'} answered with an HTML page instead of a signed ZIP, so nothing was used. A login page or a proxy may have answered: check ${input}, the network and any proxy.`,
  )
}

/** The base URLs of a hub's three groups of routes. Each may contain a path. */
export interface HubBases {
  hub: string
  services: string
  deployments: string
}

/** A base URL, and its input as a message ends with it: `hub-url`, or `hub-url, or set services-url`. */
interface NamedBase {
  readonly url: string
  readonly input: string
}

/** Returns the base URL of a group of routes. A group whose input is not set uses the hub's base URL. */
export function namedBase<Group extends keyof HubBases>(
  bases: Pick<HubBases, Group | 'hub'>,
  group: Group,
  inputs: InputNames,
): NamedBase {
  const url = bases[group]
  const isOwn = group === 'hub' || url !== bases.hub
  return { url, input: isOwn ? inputs[group] : `${inputs.hub}, or set ${inputs[group]}` }
}

/** The names of the inputs for a marketplace, so that an error names inputs that the running action has. */
export interface InputNames {
  readonly hub: string
  readonly services: string
  readonly deployments: string
  readonly apiKey: string
  readonly signingSecret: string
  /** The inputs that identify a plugin or service, as the start of a list that ends with a base URL's input. */
  readonly subject: string
}

export const OWN_INPUTS: InputNames = {
  hub: 'hub-url',
  services: 'services-url',
  deployments: 'deployments-url',
  apiKey: 'api-key',
  signingSecret: 'signing-secret',
  subject: 'slug, kind, version',
}

const MAX_ERROR_MESSAGE_CHARS = 2000

/** Reports deployments of one plugin or service to the hub, best-effort (contract 4.3, rules 7 and 8). */
export function createMarketplaceSender(
  client: Pick<MarketplaceClient, 'sendReport'>,
  subject: Omit<MarketplaceAccess, 'apiKey'>,
): ReportSender {
  return {
    address: reportAddress(subject),
    async send(report, limits): Promise<Delivery> {
      try {
        const answer = await client.sendReport(buildMarketplaceReportBody(report, subject), limits)
        const { status, attempts } = answer
        if (status >= 200 && status < 300) return { accepted: true, attempts }
        return refused(status, { attempts, error: `${saidBy(answer)}.${reportRemedy(status, subject)}` })
      } catch (error) {
        const attempts = attemptsBefore(error)
        return { accepted: false, attempts, status: null, error: toDeployError(error).message, final: false }
      }
    },
  }
}

export function buildMarketplaceReportBody(
  report: LocalReport,
  { kind, slug }: MarketplaceSubject,
): MarketplaceReportBody {
  return {
    kind,
    slug,
    version: report.version ?? report.requested_version ?? 'unknown',
    status: report.status,
    started_at: report.started_at,
    completed_at: report.completed_at,
    host_id: report.host_id,
    repo: report.repo,
    error_message: report.error === null ? null : report.error.message.slice(0, MAX_ERROR_MESSAGE_CHARS),
  }
}

function reportRemedy(status: number, { bases, inputs = OWN_INPUTS }: Omit<MarketplaceAccess, 'apiKey'>): string {
  if (status !== 404) return ''
  const base = namedBase(bases, 'deployments', inputs)
  return ` The report was sent to ${shownBase(base)}: check ${base.input}.`
}

function reportAddress({ bases, kind, slug }: Omit<MarketplaceAccess, 'apiKey'>): string {
  return `${bases.deployments.replace(/\/+$/, '')}/deployments/report ${kind} ${slug}`
}
