import type { z } from 'zod/mini'
import {
  ArtifactError,
  AuthenticationError,
  type DeployError,
  DeploymentError,
  type ErrorCode,
} from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { isTransientStatus } from '../../net/retries.ts'
import type { JsonAnswer } from '../../net/wire.ts'
import { parseErrorText } from './bodies.ts'

/** The calls of the project contract (contract 4.2), in their order. */
export type HubCall = 'auth' | 'latest' | 'artifact' | 'download' | 'authorize' | 'report'

export interface RefusedAnswer {
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
export interface CallSubject {
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
  if (answer.status < 200 || answer.status > 299) throw refusalOf(call, answer)
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
export function refusalOf({ call, subject }: CallSubject, answer: RefusedAnswer): DeployError {
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
