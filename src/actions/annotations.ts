import * as core from '@actions/core'
import { cleanForeignText } from '../core/foreign-text.ts'
import { SourceError } from '../core/source-problem.ts'
import type { LocalReport } from '../install/local-report.ts'

/** The runner shows ten annotations of a kind a step, and 4,096 characters of each. */
const MAX_ANNOTATIONS = 10
const MAX_ANNOTATION_CHARS = 4000

/** One error annotation with the cause; a plan or host config with problems has each at its line instead. No stack for an operator's error. */
export function annotateFailure(error: Error, report: LocalReport, redact: (text: string) => string): void {
  const safe = (text: string): string => cleanForeignText(redact(text), MAX_ANNOTATION_CHARS)
  if (error instanceof SourceError) {
    annotateSource(error, safe)
    return
  }
  const { code, message } = report.error ?? { code: 'internal_error', message: error.message }
  const undone = report.rollback?.problems.map(problem => ` ${problem}`).join('') ?? ''
  core.error(safe(`${message}${undone}`), { title: code })
  if (code === 'internal_error') core.info(safe(error.stack ?? ''))
}

function annotateSource(error: SourceError, safe: (text: string) => string): void {
  for (const [index, { message, file, line, column }] of error.problems.entries()) {
    if (index < MAX_ANNOTATIONS)
      core.error(safe(message), { title: error.code, file, startLine: line, startColumn: column })
    else core.info(`${safe(file)}:${line}:${column}: ${safe(message)}`)
  }
}
