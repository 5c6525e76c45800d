import * as core from '@actions/core'
import { SourceError } from '../core/document/source-problem.ts'
import { toDeployError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { LocalReport } from '../install/reports/local-report.ts'
import { rollbackProblems } from './rollback-problems.ts'

/** The runner shows ten annotations of a kind a step, and 4,096 characters of each. */
const MAX_ANNOTATIONS = 10
const MAX_ANNOTATION_CHARS = 4000

/** One error annotation with the cause; a plan or host config with problems has each at its line instead. No stack for an operator's error. */
export function annotateFailure(error: Error, report: LocalReport, redact: (text: string) => string): void {
  if (error instanceof SourceError) {
    annotateSource(error, safely(redact))
    return
  }
  const { code, message } = report.error ?? toDeployError(error)
  annotateCause(error, code, `${message}${takingBack(report)}`, safely(redact))
}

function takingBack(report: LocalReport): string {
  const problems = rollbackProblems(report)
  return problems.length === 0 ? '' : ` — While it was taken back: ${problems.join(' ')}`
}

/** The same for what ended an action before it had a report. */
export function annotateError(thrown: unknown, redact: (text: string) => string): void {
  const { code, message } = toDeployError(thrown)
  annotateCause(thrown, code, message, safely(redact))
}

function annotateCause(thrown: unknown, code: string, message: string, safe: (text: string) => string): void {
  core.error(safe(message), { title: code })
  if (code === 'internal_error' && thrown instanceof Error) core.info(safe(thrown.stack ?? ''))
}

function safely(redact: (text: string) => string): (text: string) => string {
  return text => cleanForeignText(redact(text), MAX_ANNOTATION_CHARS)
}

function annotateSource(error: SourceError, safe: (text: string) => string): void {
  for (const [index, { message, file, line, column }] of error.problems.entries()) {
    if (index < MAX_ANNOTATIONS)
      core.error(safe(message), { title: error.code, file, startLine: line, startColumn: column })
    else core.info(`${safe(file)}:${line}:${column}: ${safe(message)}`)
  }
}
