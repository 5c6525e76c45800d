import { ArtifactError, type ErrorCode, errnoOf } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'

/** A failure on the way that another attempt may not meet. */
export class TransientError extends ArtifactError {
  /** False when no byte of the request can have reached the server. */
  readonly sent: boolean

  constructor(code: ErrorCode, message: string, sent: boolean, cause?: unknown) {
    super(code, message, { cause })
    this.sent = sent
  }
}

/**
 * What a system error on the connection to `origin` means to the operator: `bad_response` for an answer that is not HTTP,
 * else `network`, which is transient unless a certificate was refused. The message names no path and no query, as both may hold tokens.
 */
export function explainFailure(error: unknown, origin: string, sent: boolean): ArtifactError {
  const code = errnoOf(error) ?? ''
  const reason = reasonOf(error)
  if (code.startsWith('HPE_')) {
    const hint = origin.startsWith('http:') ? ', or is it https instead of http?' : '.'
    const message = `${origin} did not answer in HTTP (${reason}): check the URL and its port${hint}`
    return new ArtifactError('bad_response', message, { cause: error })
  }
  if (CERTIFICATE_CODE.test(code)) {
    return new ArtifactError(
      'network',
      `The certificate of ${origin} was refused (${reason}): nothing was sent. If it is from a private authority, name that one in ca-file.`,
      { cause: error },
    )
  }
  if (!sent && NO_TLS_CODE.test(code)) {
    const message = `${origin} does not speak TLS on this port, or none that we accept (${code}): check the URL and its port, or is it http instead of https?`
    return new TransientError('network', message, sent, error)
  }
  const what = sent ? `The connection to ${origin} broke` : `No connection to ${origin}`
  return new TransientError('network', `${what} (${reason}): check the URL, the network and any proxy.`, sent, error)
}

const NO_TLS_CODE = /^EPROTO$|^ERR_SSL_/
const CERTIFICATE_CODE = /CERT|LEAF_SIGNATURE|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH/

function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return reasonOf(error.errors[0])
  const message = error instanceof Error ? error.message : String(error)
  return cleanForeignText(message === '' ? (errnoOf(error) ?? 'no reason given') : message, 200)
}
