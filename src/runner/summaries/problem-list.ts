import { SourceError } from '../../core/document/source-problem.ts'
import { cell, code } from '../../core/markdown.ts'

/** There are fewer annotations; the log has all of them. */
const MAX_LISTED_PROBLEMS = 30

/** Everything wrong with a plan or host config, of which the failure's sentence names only the first, as one block. */
export function listProblems(error: Error | undefined): string[] {
  if (!(error instanceof SourceError) || error.problems.length < 2) return []
  const lines = error.problems
    .slice(0, MAX_LISTED_PROBLEMS)
    .map(({ file, line, column, message }) => `- ${code(`${file}:${line}:${column}`)} ${cell(message)}`)
  const more = error.problems.length - lines.length
  return [[...lines, ...(more > 0 ? [`- and ${more} more, which the log lists`] : [])].join('\n')]
}
