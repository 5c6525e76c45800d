import { ConfigError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { projectIdSchema } from '../core/identifiers.ts'
import type { JsonAnswer, Wire } from '../net/wire.ts'
import { authAnswerSchema } from './bodies.ts'
import { parseAnswer } from './parse-answer.ts'

export interface ProjectAccess {
  /** May carry a path, below which every route lies. */
  hubUrl: string
  projectId: string
  devkey: string
  /** Is told each access token and key as soon as it is known, to have it masked. */
  hide: (secret: string) => void
}

type Request = Omit<Parameters<Wire['requestJson']>[0], 'url' | 'credentials'>

/** One project's standing with its hub: where the routes are, and the access token, which is kept in memory only. */
export class HubSession {
  readonly hub: URL
  readonly projectId: string
  readonly #access: ProjectAccess
  #token: string | undefined

  /** Throws ConfigError `invalid_input` for a hub URL that is none and a project id that must not get into a path. */
  constructor(access: ProjectAccess) {
    this.#access = access
    this.hub = parseHubUrl(access.hubUrl)
    this.projectId = verifyProjectId(access.projectId)
  }

  get hasToken(): boolean {
    return this.#token !== undefined
  }

  /** Exchanges the devkey for an access token (contract 5.2, rule 1). Not repeated once it was sent. */
  async authenticate(wire: Wire, timeoutMs: number): Promise<string> {
    const { devkey, hide } = this.#access
    const body = { xdevkey: devkey, project_id: this.projectId }
    const url = this.#routeOf(['auth'])
    const answer = await wire.requestJson({ method: 'POST', url, body, retry: 'connection-only', timeoutMs })
    const { access_token: token } = parseAnswer('auth', answer, authAnswerSchema, `project ${this.projectId}`)
    hide(token)
    this.#token = token
    return token
  }

  /** Asks the hub, with the token (contract 5.2, rule 2); authenticates first where there is none yet. */
  async request(wire: Wire, route: readonly string[], request: Request): Promise<JsonAnswer> {
    const endsAt = performance.now() + request.timeoutMs
    const credentials = await this.credentialsFor(this.hub, wire, request.timeoutMs)
    const timeoutMs = Math.max(1, endsAt - performance.now())
    return wire.requestJson({ ...request, url: this.#routeOf(route), credentials, timeoutMs })
  }

  /** The token as a header, for a URL of the hub's own origin; nothing for any other (contract 2.2, `download_url`). */
  async credentialsFor(url: URL, wire: Wire, timeoutMs: number): Promise<Record<string, string>> {
    if (url.origin !== this.hub.origin) return {}
    return { Authorization: `Bearer ${this.#token ?? (await this.authenticate(wire, timeoutMs))}` }
  }

  #routeOf(parts: readonly string[]): string {
    return [this.#access.hubUrl.replace(/\/+$/, ''), 'v1', ...parts.map(encodeURIComponent)].join('/')
  }
}

function parseHubUrl(text: string): URL {
  if (URL.canParse(text)) return new URL(text)
  throw new ConfigError('invalid_input', 'hub-url must be an absolute https URL: correct it.')
}

/** A URL's path loses "." and "..", however they are encoded, so that the next part would take their place. */
function verifyProjectId(projectId: string): string {
  if (projectIdSchema.safeParse(projectId).success && !/^\.{1,2}$/.test(projectId)) return projectId
  throw new ConfigError(
    'invalid_input',
    `project-id must be 1 to 128 of A-Z, a-z, 0-9, "_", "." and "-", and neither "." nor "..", found "${cleanForeignText(projectId, 60)}".`,
  )
}
