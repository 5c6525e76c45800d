export type ErrorStatus = 400 | 401 | 403 | 404 | 405 | 409 | 411 | 413 | 415 | 500

/** A refusal that the caller may read: the HTTP status, and one sentence that becomes the answer's `error`. */
export class HubError extends Error {
  override readonly name = 'HubError'
  readonly status: ErrorStatus

  constructor(status: ErrorStatus, message: string) {
    super(message)
    this.status = status
  }
}

/** A command line that cannot be understood; the program ends with exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}
