import { ConfigError, type ErrorCode } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'

/** Enough to mend a file with; a hostile file must not make us write millions. */
export const MAX_REPORTED_PROBLEMS = 100

/** A place in a text file; both count from 1. */
export interface SourcePosition {
  readonly line: number
  readonly column: number
}

/** One mistake in an operator's file: one sentence and the place to look at. */
export interface SourceProblem extends SourcePosition {
  readonly message: string
  readonly file: string
}

/** An operator's file is refused; `problems` holds what is wrong with it, in the order of the file. */
export class SourceError extends ConfigError {
  override readonly name: string = 'SourceError'
  readonly problems: readonly SourceProblem[]

  constructor(code: ErrorCode, document: string, problems: readonly SourceProblem[]) {
    const ordered = problems.toSorted((a, b) => a.line - b.line || a.column - b.column)
    super(code, summaryOf(document, ordered))
    this.problems = ordered
  }
}

function summaryOf(document: string, problems: readonly SourceProblem[]): string {
  const first = problems[0]
  if (first === undefined) return `${document} is refused.`
  const place = `${cleanForeignText(first.file)}, line ${first.line}, column ${first.column}`
  if (problems.length === 1) return `${document} is refused at ${place}: ${first.message}`
  return `${document} has ${problems.length} problems; the first is at ${place}: ${first.message}`
}

/** The value, or the problems of the operator's file, so that the next file is looked at as well. */
export function collectProblems<T>(read: () => T): { value: T | undefined; problems: readonly SourceProblem[] } {
  try {
    return { value: read(), problems: [] }
  } catch (error) {
    if (!(error instanceof SourceError)) throw error
    return { value: undefined, problems: error.problems }
  }
}
