import { ConfigError, type ErrorCode } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'
import { asSentence } from '../sentence.ts'

/** Enough to fix a file with; a hostile file must not make us write millions. */
export const MAX_REPORTED_PROBLEMS = 100

/** A place in an operator's file; line and column count from 1. */
export interface SourcePosition {
  readonly file: string
  readonly line: number
  readonly column: number
}

/** One mistake in an operator's file, as a sentence, and where it is. */
export interface SourceProblem extends SourcePosition {
  readonly message: string
  /** Where it is not that of the error: a plan's error also lists what is wrong with the host config. */
  readonly code?: ErrorCode
}

/**
 * An operator's file is refused; `problems` lists what is wrong with it, in the order of the file, one file after
 * another.
 */
export class SourceError extends ConfigError {
  override readonly name: string = 'SourceError'
  readonly problems: readonly SourceProblem[]

  constructor(code: ErrorCode, document: string, problems: readonly SourceProblem[]) {
    const files = [...new Set(problems.map(({ file }) => file))]
    const ordered = problems.toSorted(
      (a, b) => files.indexOf(a.file) - files.indexOf(b.file) || a.line - b.line || a.column - b.column,
    )
    super(code, summaryOf(document, ordered))
    this.problems = ordered
  }
}

/** A problem at a position, which may be that of a whole step. */
export function problemAt({ file, line, column }: SourcePosition, message: string): SourceProblem {
  return { message, file, line, column }
}

export interface Collected<T> {
  readonly value: T | undefined
  readonly problems: readonly SourceProblem[]
  /** What has refused the file. */
  readonly error?: SourceError
}

/** The value, or the problems of the operator's file, so that the caller can check the next file as well. */
export function collectProblems<T>(read: () => T): Collected<T> {
  try {
    return { value: read(), problems: [] }
  } catch (error) {
    return problemsOf(error)
  }
}

/** The same for work with pauses; nothing of a file that there is not. */
export function* collectProblemsSlowly<T>(reading: Generator<void, T> | undefined): Generator<void, Collected<T>> {
  try {
    return { value: reading && (yield* reading), problems: [] }
  } catch (error) {
    return problemsOf(error)
  }
}

function problemsOf(error: unknown): Collected<never> {
  if (!(error instanceof SourceError)) throw error
  return { value: undefined, problems: error.problems, error }
}

function summaryOf(document: string, problems: readonly SourceProblem[]): string {
  const first = problems[0]
  if (first === undefined) return `${document} is refused.`
  const place = `${cleanForeignText(first.file)}, line ${first.line}, column ${first.column}`
  if (problems.length === 1) return `${document} is refused at ${place}: ${asSentence(first.message)}`
  return `${document} has ${problems.length} problems; the first is at ${place}: ${asSentence(first.message)}`
}
