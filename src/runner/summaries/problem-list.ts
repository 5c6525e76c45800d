import { SourceError } from '../../core/document/source-problem.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { cellOf, code } from '../../core/markdown.ts'

/** More problems than the annotations show; the log lists all of them. */
const MAX_LISTED_PROBLEMS = 30
const MAX_FILE_CHARS = 200
const MAX_MESSAGE_CHARS = 500

/**
 * Lists at most 30 problems of a plan or host config as one block, because the failure's sentence names only the first.
 */
export function listProblems(error: Error | undefined): string[] {
  if (!(error instanceof SourceError) || error.problems.length < 2) return []
  const lines = error.problems
    .slice(0, MAX_LISTED_PROBLEMS)
    .map(
      ({ file, line, column, message }) =>
        `- ${code(`${cleanForeignText(file, MAX_FILE_CHARS)}:${line}:${column}`)} ${cellOf(message, MAX_MESSAGE_CHARS)}`,
    )
  const more = error.problems.length - lines.length
  return [[...lines, ...(more > 0 ? [`- and ${more} more, which the log lists`] : [])].join('\n')]
}
