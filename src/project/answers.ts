import {
  ArtifactError,
  AuthenticationError,
  type DeployError,
  DeploymentError,
  type ErrorCode,
} from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { parseErrorText } from './bodies.ts'

/** The calls of the project contract (contract 4.2), in their order. */
export type HubCall = 'auth' | 'latest' | 'artifact' | 'download' | 'authorize' | 'report'

export interface RefusedAnswer {
  status: number
  body: unknown
  /** Where the answer came from; its query is not told. */
  url: string
}

type ErrorClass = new (code: ErrorCode, message: string) => DeployError

/** Contract 7: what an answer other than 2xx means, with 401 and 403 (`denied`) and with every other status. */
const ERROR_CLASSES: Readonly<Record<HubCall, { denied: ErrorClass; other: ErrorClass }>> = {
  auth: { denied: AuthenticationError, other: DeploymentError },
  latest: { denied: ArtifactError, other: ArtifactError },
  artifact: { denied: ArtifactError, other: ArtifactError },
  download: { denied: ArtifactError, other: ArtifactError },
  authorize: { denied: AuthenticationError, other: ArtifactError },
  report: { denied: DeploymentError, other: DeploymentError },
}

/**
 * The error that an answer other than 2xx to this call stands for (contract 7). Its message holds the HTTP status and the
 * answer's `error`, cleaned, when there is one. Codes: `authentication_failed`, `report_refused`, `not_found` for 404, else
 * `artifact_unavailable`.
 */
export function refusalOf(call: HubCall, answer: RefusedAnswer, subject: string): DeployError {
  const isDenied = answer.status === 401 || answer.status === 403
  const Refusal = ERROR_CLASSES[call][isDenied ? 'denied' : 'other']
  const code = codeOf(call, answer.status, Refusal)
  const told = parseErrorText(answer.body)
  const said = `${withoutQuery(answer.url)} answered ${answer.status}${told === undefined ? '' : ` (${cleanForeignText(told)})`}`
  return new Refusal(code, `${PURPOSES[call]} ${subject}: ${said}. ${remedyOf(call, isDenied, answer.status)}`)
}

/**
 * `bad_response` for a 2xx answer that is not `expected`, in the class of the call's other errors. Nothing of the answer is
 * quoted: it may hold a token or a key.
 */
export function malformedAnswer(call: HubCall, expected: string, subject: string): DeployError {
  const message = `${PURPOSES[call]} ${subject}: the hub should answer with ${expected} and does not. Check hub-url; if it is right, tell who runs the hub.`
  return new ERROR_CLASSES[call].other('bad_response', message)
}

/** A signed URL carries its permission in the query. */
function withoutQuery(url: string): string {
  const { origin, pathname } = new URL(url)
  return origin + pathname
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
    return 'Check deployment-credential: it, or the version, may be revoked, or it may be wrong or for another project. Nothing was installed.'
  }
  if (call === 'download' && isDenied)
    return 'Run again, for a fresh download_url; if that is refused too, ask who runs the hub.'
  if (isDenied) return 'The hub took the token but does not let it do this: ask who runs the hub.'
  if (status === 404) return call === 'auth' ? 'Check hub-url.' : 'Check project-id, version and hub-url.'
  return 'Try again later, or ask who runs the hub.'
}
