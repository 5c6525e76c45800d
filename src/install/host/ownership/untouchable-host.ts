import { DeploymentError, type ErrorCode, type ErrorOptions } from '../../../core/errors.ts'
import { asSentence } from '../../../core/sentence.ts'

/**
 * Refuses a host because another user may have written below the project root, or because this could not be ruled out.
 * In that case, nothing below the root may be read, written or run: no journal, lock, report, audit line or outbox. The
 * outputs and the report to the hub still state the result.
 */
export class UntouchableHostError extends DeploymentError {
  override readonly name: string = 'UntouchableHostError'

  /** The message without the sentence that nothing was changed. */
  readonly reason: string

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(code, `${asSentence(message)} No plugin or service below project-root was changed.`, options)
    this.reason = asSentence(message)
  }
}
