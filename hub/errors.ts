export type ErrorStatus = 400 | 401 | 403 | 404 | 405 | 409 | 411 | 413 | 415 | 422 | 500 | 503 | 507

/** A refusal for the caller: an HTTP status, and the message of the response. */
export class HubError extends Error {
  override readonly name = 'HubError'
  readonly status: ErrorStatus

  constructor(status: ErrorStatus, message: string) {
    super(message)
    this.status = status
  }
}

/** A wrong command line; the program exits with code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/**
 * The body of every refusal. It has the same message under both names, because some clients read only one of the two.
 */
export interface ErrorBody {
  readonly error: string
  readonly detail: string
}

export function errorBody(message: string): ErrorBody {
  return { error: message, detail: message }
}
