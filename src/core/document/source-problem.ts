import { ConfigError, type ErrorCode } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'
import { asSentence } from '../sentence.ts'

/** Enough to fix a file; a hostile file must not cause millions of problems. */
export const MAX_REPORTED_PROBLEMS = 100

/** A place in a plan or a host config; line and column count from 1. */
export interface SourcePosition {
  readonly file: string
  readonly line: number
  readonly column: number
}

/** One mistake in a plan or a host config, as a sentence, with its position. */
export interface SourceProblem extends SourcePosition {
  readonly message: string
  /**
   * The problem's own code; without one, the error's code applies. The error for a plan may also list problems of the
   * host config.
   */
  readonly code?: ErrorCode
}

/**
 * The error for a refused plan, a refused host config, or both. `problems` lists the mistakes file by file, each file's
 * mistakes in the order of the file.
 */
export class SourceError extends ConfigError {
  override readonly name: string = 'SourceError'
  readonly problems: readonly SourceProblem[]

  constructor(code: ErrorCode, document: string, problems: readonly SourceProblem[]) {
    const files = [...new Set(problems.map(({ file }) => file))]
    const ordered = problems.toSorted((a, b) => files.indexOf(a.file) - files.indexOf(b.file) || compareInFile(a, b))
    super(code, summaryOf(document, ordered))
    this.problems = ordered
  }
}

/** Builds a problem at a position. Copies only the position, because the argument may be a whole step. */
export function problemAt({ file, line, column }: SourcePosition, message: string): SourceProblem {
  return { message, file, line, column }
}

/** A mistake whose sentence is built only if it is reported. */
export interface FoundProblem {
  readonly at: SourcePosition
  readonly sentence: () => string
}

/** Returns the first `MAX_REPORTED_PROBLEMS` mistakes in one file, in the order of the file. */
export function firstProblems(found: readonly FoundProblem[]): SourceProblem[] {
  return found
    .toSorted((a, b) => compareInFile(a.at, b.at))
    .slice(0, MAX_REPORTED_PROBLEMS)
    .map(({ at, sentence }) => problemAt(at, sentence()))
}

function compareInFile(a: SourcePosition, b: SourcePosition): number {
  return a.line - b.line || a.column - b.column
}

export interface Collected<T> {
  readonly value: T | undefined
  readonly problems: readonly SourceProblem[]
  /** The error with which the file was refused. */
  readonly error?: SourceError
}

/**
 * Returns the value, or the problems of the refused file, so that the caller can also check the next file. Rethrows
 * any error that is not a SourceError.
 */
export function collectProblems<T>(read: () => T): Collected<T> {
  try {
    return { value: read(), problems: [] }
  } catch (error) {
    return problemsOf(error)
  }
}

/** Like `collectProblems`, for work with pauses. If there is no file, returns neither a value nor problems. */
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
  // If a file has more problems, `problems` contains only the first ones.
  const count = problems.length < MAX_REPORTED_PROBLEMS ? problems.length : `at least ${problems.length}`
  return `${document} has ${count} problems; the first is at ${place}: ${asSentence(first.message)}`
}
