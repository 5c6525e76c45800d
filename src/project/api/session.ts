import { AuthenticationError, ConfigError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { projectIdSchema } from '../../core/identifiers.ts'
import { monotonicMs } from '../../core/monotonic.ts'
import type { SecretKeeper } from '../../install/transaction/context.ts'
import type { JsonAnswer, JsonRequest, Wire } from '../../net/wire.ts'
import { parseAnswer } from './answers.ts'
import { authAnswerSchema } from './bodies.ts'

export interface ProjectAccess {
  /** May contain a path; all routes are below it. */
  hubUrl: string
  projectId: string
  devkey: string
  /** Masks an access token or a key as soon as it is known, and keeps the hub's own URLs readable. */
  secrets: Pick<SecretKeeper, 'hide' | 'know'>
}

/** The limit for each call, including its login. Downloads and reports have their own limits. */
export const CALL_TIMEOUT_MS = 60_000
/** The time for which a new token counts as fresh, unless the hub gives the token a shorter life. */
const FRESH_MS = 30_000

type Request = Omit<JsonRequest, 'url' | 'credentials'> & BodyCredential

/** The conditions that end a call before it has an answer. */
export type CallLimits = Pick<JsonRequest, 'timeoutMs' | 'signal'>

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
export class HubSession {
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
