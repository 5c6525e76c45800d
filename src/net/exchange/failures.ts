import { ArtifactError, DeployError, type ErrorCode, type ErrorOptions, errnoOf } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'

/** The facts about a connection that an operator needs. */
export interface ConnectionState {
  /** The server's origin, or another name for it in messages. */
  server: string
  /** True if the server is not the operator's. If so, no message quotes what it sent, such as its certificate. */
  foreign: boolean
  /** False when no byte of the request can have reached the server. */
  sent: boolean
}

/** A failure that another attempt may avoid: a failed connection, or an answer that may differ later. */
export class TransientError extends ArtifactError {
  /** False when no byte of the request can have reached the server. */
  readonly sent: boolean

  constructor(code: ErrorCode, message: string, options: ErrorOptions & { sent: boolean }) {
    super(code, message, options)
    this.sent = options.sent
  }
}

/**
 * Turns an error on a connection into one that explains the failure to the operator; returns a DeployError as it is.
 * The code is `bad_response` for an answer that is not HTTP, otherwise `network`. Every `network` error is a
 * TransientError, except for a refused certificate. The message names no path and no query: both may contain tokens.
 */
export function explainFailure(error: unknown, { server, foreign, sent }: ConnectionState): DeployError {
  if (error instanceof DeployError) return error
  const code = errnoOf(error) ?? ''
  const reason = foreign ? foreignReason(error, code) : reasonOf(error)
  if (code.startsWith('HPE_')) {
    const advice = server.startsWith('http:')
      ? 'check the URL and its port, and whether the URL should be https instead of http.'
      : 'check the URL and its port.'
    const message = `${server} did not send a valid HTTP response (${reason}): ${advice}`
    return new ArtifactError('bad_response', message, { cause: error })
  }
  if (CERTIFICATE_CODE.test(code)) {
    const refused = `The certificate of ${server} was refused (${reason}), and nothing was sent.`
    if (!UNKNOWN_ISSUER.test(code))
      return new ArtifactError('network', `${refused} ${VALIDITY_ADVICE}`, { cause: error })
    return new ArtifactError('network', `${refused} ${ISSUER_ADVICE}`, { cause: error, next: 'Set `ca-file`' })
  }
  if (!sent && NO_TLS_CODE.test(code)) {
    const message = `${server} did not complete a TLS handshake on this port (${code}): check the URL and its port, and whether the URL should be http instead of https.`
    return new TransientError('network', message, { sent, cause: error })
  }
  const failure = sent ? `The connection to ${server} broke` : `Could not connect to ${server}`
  return new TransientError('network', `${failure} (${reason}): ${CONNECTION_ADVICE}`, {
    sent,
    cause: error,
  })
}

/** Advice for a server that cannot be reached. */
export const CONNECTION_ADVICE = 'check the URL, the network and any proxy.'

const NO_TLS_CODE = /^EPROTO$|^ERR_SSL_/
/** A code that begins with ERR_SSL_ is about another fault, for example a server that requires a client certificate. */
const CERTIFICATE_CODE =
  /^(?!ERR_SSL_).*(?:CERT|LEAF_SIGNATURE|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE|PATH_LENGTH)/
/** The certificate errors that another authority in ca-file could fix. */
const UNKNOWN_ISSUER = /SELF_SIGNED|UNABLE_TO_(?:GET_ISSUER|VERIFY)|CERT_UNTRUSTED/

const ISSUER_ADVICE = 'If a private authority issued the certificate, add that authority to ca-file.'
const VALIDITY_ADVICE = "Check the host name in the URL, this host's clock, and the certificate's dates."

/** Advice in Node's message for people who start Node themselves; an operator of this action does not. */
const NODE_HINT = /; if the root CA is installed locally, try running Node\.js with --use-system-ca/

const NO_REASON = 'no reason given'

/** Quotes only the code, and the status with which the operator's own proxy refused the connection. */
function foreignReason(error: unknown, code: string): string {
  const status = code === 'ERR_PROXY_TUNNEL' ? (error as { statusCode?: unknown }).statusCode : undefined
  return typeof status === 'number' ? `${code}: the proxy answered HTTP ${status}` : code || NO_REASON
}

function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return reasonOf(error.errors[0])
  const message = error instanceof Error ? error.message : String(error)
  const known = message.replace(NODE_HINT, '')
  return cleanForeignText(known === '' ? (errnoOf(error) ?? NO_REASON) : known, 200)
}
