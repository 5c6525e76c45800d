import { DeploymentError, type ErrorCode, type ErrorOptions } from '../../../core/errors.ts'
import { asSentence } from '../../../core/sentence.ts'

/**
 * Nothing below the project root may be read, written or run, because another user may have put it there: no journal,
 * lock, report, audit line or outbox. The outputs and the report to the hub still state the result.
 */
export class UntouchableHostError extends DeploymentError {
  override readonly name: string = 'UntouchableHostError'

  /** The message without the sentence that nothing was touched. */
  readonly reason: string

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(code, `${asSentence(message)} Nothing below project-root was touched.`, options)
    this.reason = asSentence(message)
  }
}
