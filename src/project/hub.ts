import { z } from 'zod/mini'
import {
  ArtifactError,
  AuthenticationError,
  ConfigError,
  type DeployError,
  DeploymentError,
  type ErrorCode,
  toDeployError,
} from '../core/errors.ts'
import { projectIdSchema, versionSchema } from '../core/identifiers.ts'
import { monotonicMs } from '../core/log.ts'
import { cleanForeignText } from '../core/text.ts'
import { decodeBase64, type FetchedArtifact, parseSealedSignature } from '../core/trust/signature.ts'
import { DEK_BYTES } from '../install/archive/sealed.ts'
import type { LocalReport } from '../install/reports/local-report.ts'
import { type Delivery, type ReportLimits, type ReportSender, refused } from '../install/reports/sender.ts'
import type { HubWires } from '../install/run/deployment.ts'
import type { SecretKeeper } from '../install/transaction/record.ts'
import { faultOf } from '../net/policy.ts'
import { attemptsBefore, isTransientStatus } from '../net/retries.ts'
import { readReasonFields, reasonText } from '../net/settings.ts'
import type { DownloadAnswer, JsonAnswer, JsonRequest, Wire } from '../net/wire.ts'

/** The location, signature and signer of an artifact, as the hub gives them; none of them is verified. */
export interface ArtifactDescriptor {
  version: string
  downloadUrl: URL
  /** Base64 of 64 bytes. */
  signature: string
  /** To be compared with the pinned keys. */
  signerPublicKey: string
}

interface ArtifactDownload {
  /** An open, empty file that belongs to the caller. */
  fd: number
  maxBytes: number
  /** See `DownloadRequest`. */
  isFixedMax: boolean
  /** The overall limit, retries included. */
  timeoutMs: number
  onProgress: (received: number, total: number | undefined) => void
}

export interface ProjectClient {
  /** Exchanges the devkey for an access token, which the client keeps (contract 5.2, rule 1). */
  authenticate(): Promise<void>
  /** Reads the latest published version. Also throws ArtifactError `no_published_version`. */
  readLatestVersion(): Promise<string>
  /**
   * Also throws SignatureError `missing_signature` or `invalid_signature_format`, and ConfigError `insecure_url` for
   * the `download_url`.
   */
  readDescriptor(version: string): Promise<ArtifactDescriptor>
  /**
   * Saves the artifact. Sends the token only to the hub's own origin (contract 2.2, `download_url`). If the
   * `download_url` has expired after a failed attempt, starts over once, at a new one with the same signature.
   */
  downloadArtifact(descriptor: ArtifactDescriptor, download: ArtifactDownload): Promise<FetchedArtifact>
  /**
   * Returns the 32 bytes of the artifact's key, which the caller wipes (contract 5.2, rule 3). Also throws
   * ArtifactError `decryption_failed` if the text that the hub releases is not such a key.
   */
  authorize(deploymentCredential: string, signature: string): Promise<Buffer>
  /** Sends one report. Resolves with the answer even if it is a refusal. */
  sendReport(report: OutgoingReport): Promise<JsonAnswer>
}

/** A report and its limits, which cover authentication, sending and retries. */
interface OutgoingReport extends ReportLimits {
  readonly body: ProjectReportBody
}

/**
 * The client side of the project contract for one project. An answer other than 2xx becomes the error of contract 7,
 * except that `sendReport` returns that answer. Any other answer that does not match the contract becomes
 * `bad_response`. A call without a token authenticates first, and a call whose token may have expired authenticates
 * once more (`HubSession.withToken`). Throws ConfigError `invalid_input` for a project id or version that must not
 * become part of a path.
 */
export function createProjectClient({ wire, reportWire }: HubWires, access: ProjectAccess): ProjectClient {
  const session = new HubSession(access, wire)
  const reporting = session.over(reportWire)
  return {
    async authenticate() {
      await session.authenticate({ timeoutMs: CALL_TIMEOUT_MS })
    },
    readLatestVersion: async () => await readLatestVersion(session),
    readDescriptor: async version => await readDescriptor(session, version),
    downloadArtifact: async (descriptor, download) => await downloadArtifact(session, descriptor, download),
    async authorize(deploymentCredential, signature) {
      const text = await requestDek(session, {
        deployment_credential: deploymentCredential,
        artifact_signature: signature,
      })
      // Masks the text before decoding it, because a key in a wrong form may still be the key.
      if (isSecretWord(text.trim())) access.secrets.hide(text.trim())
      return decodeDek(text, session.projectId)
    },
    sendReport: async report => await sendReport(reporting, report),
  }
}

async function readLatestVersion(session: HubSession): Promise<string> {
  const subject = `project ${session.projectId}`
  const answer = await read(session, ['versions', 'latest'])
  const { version } = parseAnswer({ call: 'latest', subject }, answer, latestAnswerSchema)
  if (version !== null) return version
  throw new ArtifactError(
    'no_published_version',
    `The hub has no published version of ${subject}: publish one, or name a version.`,
  )
}

async function readDescriptor(session: HubSession, version: string): Promise<ArtifactDescriptor> {
  requireSafeVersion(version)
  const answer = await read(session, ['artifacts', version])
  const call = { call: 'artifact', subject: artifactOf(session, version) } as const
  const descriptor = parseAnswer(call, answer, descriptorAnswerSchema)
  const signature = descriptor.signature ?? ''
  parseSealedSignature(signature)
  const downloadUrl = resolveDownloadUrl(descriptor.download_url, answer.url, session.hub)
  return { version, downloadUrl, signature, signerPublicKey: descriptor.signer_public_key }
}

/** The statuses with which storage refuses a URL that was valid when the download began. */
const EXPIRED: ReadonlySet<number> = new Set([403, 404, 410])

async function downloadArtifact(
  session: HubSession,
  { version, downloadUrl, signature }: ArtifactDescriptor,
  { timeoutMs, ...download }: ArtifactDownload,
): Promise<FetchedArtifact> {
  const endsAt = monotonicMs() + timeoutMs
  const downloadFrom = async (url: URL): Promise<DownloadAnswer> => {
    const file = { url: url.href, hub: session.hub.href, ...download }
    const limits = { timeoutMs: Math.max(1, endsAt - monotonicMs()) }
    return await session.withToken(url, limits, async more => await session.wire.download({ ...file, ...more }))
  }
  let answer = await downloadFrom(downloadUrl)
  if (answer.attempts > 1 && EXPIRED.has(answer.status)) {
    const fresh = await readDescriptor(session, version)
    if (fresh.signature === signature) answer = await downloadFrom(fresh.downloadUrl)
  }
  if (!answer.ok) throw projectRefusal({ call: 'download', subject: artifactOf(session, version) }, answer)
  return { fd: download.fd, size: answer.size, sha256: answer.sha256 }
}

async function requestDek(session: HubSession, body: Record<string, string>): Promise<string> {
  const answer = await session.request(['deployments', 'authorize'], {
    method: 'POST',
    body,
    retry: 'connection-only',
    timeoutMs: CALL_TIMEOUT_MS,
    hasCredential: true,
  })
  const call = { call: 'authorize', subject: `project ${session.projectId}` } as const
  return parseAnswer(call, answer, authorizeAnswerSchema).dek
}

function decodeDek(dek: string, projectId: string): Buffer {
  const bytes = decodeBase64(dek, DEK_BYTES)
  if (bytes !== undefined) return bytes
  throw new ArtifactError(
    'decryption_failed',
    `The hub released a key for project ${projectId} that is not base64 of ${DEK_BYTES} bytes: nothing was installed. Report this to the hub's operator.`,
  )
}

async function sendReport(
  session: HubSession,
  { body, retry, timeoutMs, signal }: OutgoingReport,
): Promise<JsonAnswer> {
  return await session.request(['deployments', 'report'], {
    method: 'POST',
    body,
    retry: retry ? 'transient' : 'never',
    timeoutMs,
    signal,
  })
}

async function read(session: HubSession, route: readonly string[]): Promise<JsonAnswer> {
  const request = { method: 'GET', retry: 'transient', timeoutMs: CALL_TIMEOUT_MS } as const
  return await session.request(['projects', session.projectId, ...route], request)
}

function requireSafeVersion(version: string): void {
  if (versionSchema.safeParse(version).success) return
  throw new ConfigError('invalid_input', `"${cleanForeignText(version, 60)}" is not a version: name another version.`)
}

function artifactOf(session: HubSession, version: string): string {
  return `version ${version} of project ${session.projectId}`
}

export interface ProjectAccess {
  /** May contain a path; all routes are below it. */
  hubUrl: string
  projectId: string
  devkey: string
  /** Masks an access token or a key as soon as it is known, and keeps the hub's own URLs readable. */
  secrets: Pick<SecretKeeper, 'hide' | 'know'>
}

/** The limit for each call, including its login. Downloads and reports have their own limits. */
const CALL_TIMEOUT_MS = 60_000
/** The time for which a new token counts as fresh, unless the hub gives the token a shorter life. */
const FRESH_MS = 30_000

type Request = Omit<JsonRequest, 'url' | 'credentials'> & BodyCredential

/** The conditions that end a call before it has an answer. */
type CallLimits = Pick<JsonRequest, 'timeoutMs' | 'signal'>

interface BodyCredential {
  /** True if a 401 may be about a credential in the request rather than about the token. */
  readonly hasCredential?: boolean | undefined
}

interface AccessToken {
  readonly text: string
  /** In milliseconds of the monotonic clock. */
  readonly freshUntil: number
}

type CountedAnswer = Pick<JsonAnswer, 'status' | 'foreign' | 'attempts'>
type Send<Answer> = (more: CallLimits & { readonly credentials: Record<string, string> }) => Promise<Answer>

/** One project's access to its hub: the routes, and the access token, which is kept only in memory. */
class HubSession {
  readonly hub: URL
  readonly projectId: string
  readonly wire: Wire
  readonly #access: ProjectAccess
  readonly #token: { known: AccessToken | undefined }

  /** Throws ConfigError `invalid_input` for a hub URL or project id that cannot be used. */
  constructor(access: ProjectAccess, wire: Wire, token: { known: AccessToken | undefined } = { known: undefined }) {
    this.#access = access
    this.#token = token
    this.wire = wire
    this.hub = parseHubUrl(access.hubUrl)
    this.projectId = verifyProjectId(access.projectId)
    access.secrets.know(this.#ownUrls())
  }

  /** Returns the same session, with the same token, over another wire. */
  over(wire: Wire): HubSession {
    return new HubSession(this.#access, wire, this.#token)
  }

  /**
   * Exchanges the devkey for an access token (contract 5.2, rule 1). Does not repeat the request once it has been sent.
   */
  async authenticate(limits: CallLimits): Promise<string> {
    const { devkey, secrets } = this.#access
    const body = { xdevkey: devkey, project_id: this.projectId }
    const url = this.#routeOf(['auth'])
    const answer = await this.wire.requestJson({ method: 'POST', url, body, retry: 'connection-only', ...limits })
    const call = { call: 'auth', subject: `project ${this.projectId}` } as const
    const { access_token: text, expires_in: seconds } = parseAnswer(call, answer, authAnswerSchema)
    secrets.hide(text)
    const freshMs = seconds === undefined ? FRESH_MS : Math.min(FRESH_MS, seconds * 1000)
    this.#token.known = { text, freshUntil: monotonicMs() + freshMs }
    return text
  }

  /** Sends a request with the token (contract 5.2, rule 2), as `withToken` does. */
  async request(route: readonly string[], { hasCredential, ...request }: Request): Promise<JsonAnswer> {
    const url = this.#routeOf(route)
    return await this.withToken(
      this.hub,
      { ...request, hasCredential },
      async more => await this.wire.requestJson({ ...request, ...more, url }),
    )
  }

  /**
   * Sends a request: to the hub's own origin with the token as a header, to any other origin without the token
   * (contract 2.2, `download_url`). Authenticates first if there is no token yet. If the hub answers 401 to a token
   * from before this call, the token may have expired: gets a new token and sends the request once more. With
   * `hasCredential`, does so only for a token that no longer counts as fresh. Returns the 401 if the time is over or
   * the hub refuses the devkey.
   */
  async withToken<Answer extends CountedAnswer>(
    url: URL,
    { timeoutMs, signal, hasCredential = false }: CallLimits & BodyCredential,
    send: Send<Answer>,
  ): Promise<Answer> {
    const endsAt = monotonicMs() + timeoutMs
    const remaining = (): CallLimits => ({ signal, timeoutMs: Math.max(1, endsAt - monotonicMs()) })
    // A login gets at most its own time limit, even if the call that needs it has a longer one.
    const forLogin = (): CallLimits => ({ signal, timeoutMs: Math.min(remaining().timeoutMs, CALL_TIMEOUT_MS) })
    if (url.origin !== this.hub.origin) return await send({ credentials: {}, ...remaining() })
    const sendOnce = async (): Promise<Answer> => {
      const token = this.#token.known?.text ?? (await this.authenticate(forLogin()))
      return await send({ credentials: { Authorization: `Bearer ${token}` }, ...remaining() })
    }
    const earlier = this.#token.known
    const first = await sendOnce()
    const isDoubtful = earlier !== undefined && !(hasCredential && monotonicMs() < earlier.freshUntil)
    const mayHaveExpired = isDoubtful && first.status === 401 && first.foreign !== true
    const hasTime = monotonicMs() < endsAt
    if (!mayHaveExpired || !hasTime || !(await this.#renew(forLogin()))) return first
    const second = await sendOnce()
    return { ...second, attempts: first.attempts + second.attempts }
  }

  /** Gets a new token. Returns false if the hub no longer accepts the devkey; throws any other error. */
  async #renew(limits: CallLimits): Promise<boolean> {
    try {
      await this.authenticate(limits)
      return true
    } catch (error) {
      if (error instanceof AuthenticationError) return false
      throw error
    }
  }

  /**
   * The URLs of this project's routes as messages show them. The run knows them before the hub issues a token:
   * otherwise, a token that is part of such a URL would remove the URL from the messages.
   */
  #ownUrls(): string[] {
    const ofProject = ['projects', this.projectId]
    const routes = [
      ['auth'],
      ['deployments', 'authorize'],
      ['deployments', 'report'],
      [...ofProject, 'versions', 'latest'],
      [...ofProject, 'artifacts'],
    ]
    return routes.map(route => new URL(this.#routeOf(route)).href)
  }

  #routeOf(parts: readonly string[]): string {
    return [this.#access.hubUrl.replace(/\/+$/, ''), 'v1', ...parts.map(encodeURIComponent)].join('/')
  }
}

function parseHubUrl(text: string): URL {
  if (URL.canParse(text)) return new URL(text)
  throw new ConfigError('invalid_input', 'hub-url must be an absolute https URL: correct hub-url.')
}

/**
 * Also refuses "." and "..": a URL drops these parts of its path, however they are encoded. The part that follows would
 * then take the place of the project id.
 */
function verifyProjectId(projectId: string): string {
  if (projectIdSchema.safeParse(projectId).success && !/^\.{1,2}$/.test(projectId)) return projectId
  throw new ConfigError(
    'invalid_input',
    `project-id must be 1 to 128 characters (A-Z, a-z, 0-9, "_", "." and "-"), and neither "." nor "..", but found "${cleanForeignText(projectId, 60)}".`,
  )
}

/** The calls of the project contract (contract 4.2), in their order. */
export type HubCall = 'auth' | 'latest' | 'artifact' | 'download' | 'authorize' | 'report'

interface RefusedAnswer {
  status: number
  body: unknown
  /** The URL that answered. No message shows its query. */
  url: string
  /** See `AnswerHead`. */
  foreign?: boolean
  /** See `AnswerHead`. */
  server?: string
}

type ErrorClass = new (code: ErrorCode, message: string) => DeployError

/** Contract 7: the error classes for an answer other than 2xx; `denied` is for 401 and 403, `other` for the rest. */
const ERROR_CLASSES: Readonly<Record<HubCall, { denied: ErrorClass; other: ErrorClass }>> = {
  auth: { denied: AuthenticationError, other: DeploymentError },
  latest: { denied: ArtifactError, other: ArtifactError },
  artifact: { denied: ArtifactError, other: ArtifactError },
  download: { denied: ArtifactError, other: ArtifactError },
  authorize: { denied: AuthenticationError, other: ArtifactError },
  report: { denied: DeploymentError, other: DeploymentError },
}

/** One call and its subject, for example `project shop` or `version 1.0.0 of project shop`. */
interface CallSubject {
  readonly call: HubCall
  readonly subject: string
}

/**
 * Parses the body of a 2xx answer. Throws the error of contract 7 for any other status, and `bad_response` for a body
 * that does not match the schema.
 */
export function parseAnswer<Schema extends z.ZodMiniType>(
  call: CallSubject,
  answer: JsonAnswer,
  schema: Schema,
): z.infer<Schema> {
  if (answer.status < 200 || answer.status > 299) throw projectRefusal(call, answer)
  const parsed = schema.safeParse(answer.body)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const field = issue?.path.join('.') ?? ''
  throw malformedAnswer(call, field === '' ? 'a JSON object' : `JSON with a valid "${field}"`)
}

/**
 * Builds the error for an answer other than 2xx to this call (contract 7). Its message contains the HTTP status and, if
 * the hub gives a reason, the cleaned reason. Codes: `authentication_failed` for a denied login or authorization,
 * `report_refused` for a report, and for any other refusal `not_found` (404) or `artifact_unavailable`.
 */
export function projectRefusal({ call, subject }: CallSubject, answer: RefusedAnswer): DeployError {
  const isDenied = answer.status === 401 || answer.status === 403
  const Refusal = ERROR_CLASSES[call][isDenied ? 'denied' : 'other']
  const code = codeOf(call, answer.status, Refusal)
  const reason = answer.foreign ? undefined : parseErrorText(answer.body)
  const quoted = reason === undefined ? '' : ` (${cleanForeignText(reason)})`
  const said = `${shownServer(call, answer)} answered ${answer.status}${quoted}`
  return new Refusal(code, `${PURPOSES[call]} ${subject}: ${said}. ${remedyOf(call, isDenied, answer.status)}`)
}

/**
 * Builds `bad_response`, in the class of the call's other errors. Quotes nothing of the answer, which may contain a
 * token or key.
 */
function malformedAnswer({ call, subject }: CallSubject, expected: string): DeployError {
  const message = `${PURPOSES[call]} ${subject}: the hub did not answer with ${expected}. Check hub-url; if it is right, report this to the hub's operator.`
  return new ERROR_CLASSES[call].other('bad_response', message)
}

/**
 * Shows no query, and only the origin of a `download_url`, because anyone who knows the whole URL can download. Some
 * hubs put the permission into the query of a `download_url`, others into its path. For a foreign answer, shows
 * `server`, because the URL may come from another foreign answer.
 */
function shownServer(call: HubCall, { url, foreign, server }: RefusedAnswer): string {
  const { origin, pathname } = new URL(url)
  if (foreign) return server ?? origin
  return call === 'download' ? origin : origin + pathname
}

const PURPOSES: Readonly<Record<HubCall, string>> = {
  auth: 'Authenticating for',
  latest: 'Asking for the latest version of',
  artifact: 'Asking for the artifact of',
  download: 'Downloading the artifact of',
  authorize: 'Asking for the key to the artifact of',
  report: 'Reporting the deployment of',
}

function codeOf(call: HubCall, status: number, Refusal: ErrorClass): ErrorCode {
  if (Refusal === AuthenticationError) return 'authentication_failed'
  if (call === 'report') return 'report_refused'
  return status === 404 ? 'not_found' : 'artifact_unavailable'
}

function remedyOf(call: HubCall, isDenied: boolean, status: number): string {
  if (call === 'auth' && isDenied)
    return 'Check devkey and project-id: the key may be wrong, revoked or for another project.'
  if (call === 'authorize' && isDenied) {
    return status === 401
      ? 'Check deployment-credential and devkey: either may be revoked, the credential may be wrong or for another project, or the version may be revoked. Nothing was installed.'
      : 'Check deployment-credential: it may be wrong, revoked or for another project, or the version may be revoked. Nothing was installed.'
  }
  if (call === 'download' && (isDenied || status === 404))
    return "Run again, for a fresh download_url; if that fails too, ask the hub's operator."
  if (status === 401)
    return "The hub refused its own access token: devkey may have been revoked. Check devkey, or ask the hub's operator."
  if (isDenied) return "The hub accepted the token but does not allow this: ask the hub's operator."
  if (status === 404) return `Check ${inputsInRequest(call)}.`
  return isTransientStatus(status) ? "Try again later, or ask the hub's operator." : "Ask the hub's operator."
}

/** Returns the inputs to check if the hub answers 404 to this call. */
function inputsInRequest(call: HubCall): string {
  if (call === 'auth') return 'hub-url'
  return call === 'artifact' || call === 'authorize' ? 'project-id, version and hub-url' : 'project-id and hub-url'
}

const MAX_TEXT_CHARS = 8192
const textSchema = z
  .string()
  .check(z.maxLength(MAX_TEXT_CHARS, { error: `must be at most ${MAX_TEXT_CHARS} characters` }))

/**
 * The minimum length of a secret. A shorter one could be a word that the run itself uses, and masking it would let the
 * hub remove that word from the log.
 */
const MIN_SECRET_CHARS = 16
const VISIBLE_ASCII = /^[\x21-\x7e]+$/

/** True for a text that may be masked wherever it appears: one word that is long enough to be a secret. */
function isSecretWord(text: string): boolean {
  return text.length >= MIN_SECRET_CHARS && VISIBLE_ASCII.test(text)
}

/** The answer of `POST /v1/auth` (contract 2.2). A token is visible ASCII, so that it fits into a header. */
const authAnswerSchema = z.lazy(() =>
  z.object({
    access_token: textSchema.check(
      z.minLength(MIN_SECRET_CHARS, { error: `must have at least ${MIN_SECRET_CHARS} characters` }),
      z.regex(VISIBLE_ASCII, { error: 'must be one word of visible ASCII' }),
    ),
    /** In seconds. The contract does not define this field, so a hub may send any value. */
    expires_in: z.catch(z.optional(z.number()), undefined),
  }),
)

/** The answer of `GET .../versions/latest`; `version` is null if there is no published version. */
const latestAnswerSchema = z.lazy(() =>
  z.object({
    version: z.pipe(
      z.pipe(
        z.nullish(z.string().check(z.trim())),
        z.transform(version => version || null),
      ),
      z.nullable(versionSchema),
    ),
  }),
)

/** The answer of `GET .../artifacts/{version}`. The caller checks the signature and the key. */
const descriptorAnswerSchema = z.lazy(() =>
  z.object({
    download_url: textSchema.check(z.minLength(1, { error: 'must be a URL' })),
    signature: z.nullish(textSchema),
    signer_public_key: textSchema,
  }),
)

/** The answer of `POST /v1/deployments/authorize`. */
const authorizeAnswerSchema = z.lazy(() => z.object({ dek: textSchema }))

/** The body of `POST /v1/deployments/report`. Times are ISO 8601, UTC. */
export interface ProjectReportBody {
  project_id: string
  deployment_id: string
  status: 'success' | 'failed' | 'rolled_back'
  version: string
  started_at: string
  completed_at: string
  plugins: { id: string; version: string }[]
}

/**
 * The reason in a refusal's JSON body: `error` (contract 7), else `detail`, else `message`; undefined if there is none.
 */
function parseErrorText(body: unknown): string | undefined {
  return reasonText(readReasonFields(body).find(reasonText))
}

/**
 * Resolves the descriptor's `download_url`, which may be relative to the URL of the hub's answer. Plain http on an
 * https hub's own host becomes https: a hub behind a proxy may not know that it is reached over https. This applies
 * only if the URL names the hub's own port or no port. The port stays as the URL names it. Another port is another
 * service, to which the wire's rules for plain http apply. Throws ArtifactError `bad_response` if `download_url` is not
 * a URL. Throws ConfigError `insecure_url` for a scheme other than https and http, and for a user name or password. The
 * wire judges the address.
 */
export function resolveDownloadUrl(downloadUrl: string, answerUrl: string, hub: URL): URL {
  if (!URL.canParse(downloadUrl, answerUrl)) {
    const message = `${hub.origin} answered with a download_url that is not a URL: report this to the hub's operator.`
    throw new ArtifactError('bad_response', message)
  }
  const url = new URL(downloadUrl, answerUrl)
  const fault = faultOf(url)
  if (fault !== undefined) {
    const message = `Expected an https URL as the download_url that ${hub.origin} gives, found one with ${fault}: report this to the hub's operator.`
    throw new ConfigError('insecure_url', message)
  }
  return isHubWithoutTls(url, hub) ? withHttps(url) : url
}

function isHubWithoutTls(url: URL, hub: URL): boolean {
  const isOnHub = url.hostname === hub.hostname && (url.port === '' || url.port === hub.port)
  return hub.protocol === 'https:' && url.protocol === 'http:' && isOnHub
}

function withHttps(url: URL): URL {
  const secured = new URL(url)
  secured.protocol = 'https:'
  return secured
}

/**
 * Reports deployments of one project to the hub (contract 4.2). If there is no access token yet, the sender gets one.
 */
export function createProjectSender(
  client: Pick<ProjectClient, 'sendReport'>,
  { hubUrl, projectId }: Pick<ProjectAccess, 'hubUrl' | 'projectId'>,
): ReportSender {
  return {
    address: `${hubUrl.replace(/\/+$/, '')}/v1/deployments/report ${projectId}`,
    async send(report, limits): Promise<Delivery> {
      try {
        const answer = await client.sendReport({ body: buildProjectReportBody(report, projectId), ...limits })
        const { status, attempts } = answer
        if (status >= 200 && status < 300) return { accepted: true, attempts }
        const error = projectRefusal({ call: 'report', subject: `project ${projectId}` }, answer).message
        return refused(status, { attempts, error })
      } catch (error) {
        const { message } = toDeployError(error)
        const denied = error instanceof AuthenticationError
        return { accepted: false, attempts: attemptsBefore(error), status: null, error: message, final: false, denied }
      }
    },
  }
}

/**
 * Builds the body of a report with the fields of contract 2.2. `version` is the version that the run deployed or tried
 * to deploy, else the requested one (which may be `latest`), else `unknown`.
 */
export function buildProjectReportBody(report: LocalReport, projectId: string): ProjectReportBody {
  return {
    project_id: projectId,
    deployment_id: report.deployment_id,
    status: report.status,
    version: report.version ?? report.requested_version ?? 'unknown',
    started_at: report.started_at,
    completed_at: report.completed_at,
    plugins: (report.plugins ?? []).map(({ id, version }) => ({ id, version })),
  }
}
