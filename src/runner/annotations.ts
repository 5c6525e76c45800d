import * as core from '@actions/core'
import { toDeployError } from '../core/errors.ts'
import { cleanLogLine } from '../core/text.ts'
import { SourceError } from '../core/yaml/problems.ts'
import { type LocalReport, restoredUnhealthy, rollbackProblems } from '../install/reports/local-report.ts'

/** The runner shows ten annotations of each kind for a step, and 4,096 characters of each. */
const MAX_ANNOTATIONS = 10
const MAX_ANNOTATION_CHARS = 4000

/** Writes annotations that contain no secret. */
export class Annotator {
  readonly #redact: (text: string) => string

  constructor(redact: (text: string) => string) {
    this.#redact = redact
  }

  /**
   * Writes an error annotation with the cause. Instead, each of the first ten problems of a plan or host config gets an
   * annotation at its line; the log lists the others. Adds an annotation if the restored version is unhealthy. Logs a
   * stack only for an `internal_error`.
   */
  annotateFailure(error: Error, report: LocalReport): void {
    if (error instanceof SourceError) {
      this.#annotateProblems(error)
      return
    }
    const { code, message } = report.error ?? toDeployError(error)
    const unhealthy = restoredUnhealthy(report)
    const problems = unhealthy === undefined ? rollbackProblems(report) : []
    const sentence = problems.length === 0 ? message : `${message} — During the rollback: ${problems.join(' ')}`
    this.#annotate(sentence, code)
    if (unhealthy !== undefined) this.annotateUnhealthy(unhealthy)
    if (code === 'internal_error') this.#logStack(error)
  }

  /** Like `annotateFailure`, for a failure without a report. */
  annotateError(thrown: unknown): void {
    if (thrown instanceof SourceError) {
      this.#annotateProblems(thrown)
      return
    }
    const { code, message } = toDeployError(thrown)
    this.#annotate(message, code)
    if (code === 'internal_error') this.#logStack(thrown)
  }

  /** Writes a separate error annotation about a version or service that is unhealthy after a rollback. */
  annotateUnhealthy(sentence: string): void {
    this.#annotate(sentence, 'unhealthy')
  }

  #annotateProblems(error: SourceError): void {
    for (const [index, { message, file, line, column, code = error.code }] of error.problems.entries()) {
      if (index < MAX_ANNOTATIONS)
        core.error(this.#safe(message), { title: code, file, startLine: line, startColumn: column })
      else core.info(`${this.#safe(file)}:${line}:${column}: ${this.#safe(message)}`)
    }
  }

  #annotate(message: string, title: string): void {
    core.error(this.#safe(message), { title })
  }

  #logStack(thrown: unknown): void {
    if (thrown instanceof Error) core.info(this.#safe(thrown.stack ?? ''))
  }

  #safe(text: string): string {
    return cleanLogLine(this.#redact(text), MAX_ANNOTATION_CHARS)
  }
}
