import { ArtifactError, AuthenticationError, type DeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { Kind } from '../../core/identifiers.ts'
import { withoutLeadingV } from '../../core/trust/versions.ts'
import { TransientError } from '../../net/exchange/failures.ts'
import { isTransientStatus } from '../../net/retries.ts'
import type { JsonAnswer } from '../../net/wire.ts'
import { parseErrorText } from './bodies.ts'
import type { NamedBase } from './hub-bases.ts'
import { type InputNames, OWN_INPUTS } from './input-names.ts'

export interface MarketplaceSubject {
  kind: Kind
  slug: string
  /** Set if the action's inputs have other names than those of the deploy action. */
  inputs?: InputNames
}

/** The object that a request fetches, the base URL of the request, and whether the hub signs the object. */
export interface Wanted {
  readonly name: string
  readonly base: NamedBase
  readonly isSigned: boolean
  /** Set for the artifact of a version. */
  readonly version?: string
}

type Refused = Pick<JsonAnswer, 'status' | 'body' | 'foreign'>

/**
 * Builds the error for an answer other than 200, with the hub's reason: AuthenticationError `authentication_failed` for
 * 401 and 403, ArtifactError `not_found` for 404, else `artifact_unavailable`. The last is a TransientError if another
 * attempt may get another answer.
 */
export function refusal(answer: Refused, subject: MarketplaceSubject, wanted: Wanted): DeployError {
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
export function saidBy({ status, body, foreign }: Refused): string {
  const reason = foreign ? undefined : parseErrorText(body)
  return `the hub answered ${status}${reason === undefined ? '' : ` (${cleanForeignText(reason)})`}`
}

/** Returns the origin and path of a base URL. */
export function shownBase({ url }: Pick<NamedBase, 'url'>): string {
  const { origin, pathname } = new URL(url)
  return (origin + pathname).replace(/\/+$/, '')
}

function remedyFor({ status, foreign }: Refused, { isSigned, base, version }: Wanted, inputs: InputNames): string {
  switch (status) {
    case 400:
      return isSigned && !foreign
        ? `The owner of this ${inputs.apiKey} may have no signing key on the hub: create one there, and set ${inputs.signingSecret} to its secret. Otherwise ask the hub's operator.`
        : "Ask the hub's operator."
    case 401:
      return `Check ${inputs.apiKey}, which may be wrong, revoked or expired.`
    case 403:
      if (inputs.apiKey === 'access-token') return 'Check access-token, which may not allow this request.'
      // One key fetches all sources of a project.
      if (inputs.apiKey === 'sources-api-key')
        return 'Check sources-api-key: a key may be bound to one kind and slug; such a key fetches no other source.'
      return `Check ${inputs.apiKey}: a key may be bound to one kind and slug; in that case, a matrix over slugs needs a key for each slug.`
    case 404:
      return `Check ${inputs.subject} and ${base.input}.${hintAtBareVersion(version)}`
    default:
      return isTransientStatus(status) ? "Try again later, or ask the hub's operator." : "Ask the hub's operator."
  }
}

/** A tag `v1.2.0` is usually published as the version 1.2.0. */
function hintAtBareVersion(version = ''): string {
  const bare = withoutLeadingV(version)
  return bare === version ? '' : ` Most versions are published without the v: try ${bare}.`
}
