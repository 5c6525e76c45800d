import { ConfigError, type ErrorCode } from '../errors.ts'
import { asSentence, cleanForeignText } from '../text.ts'

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

/** An operator's file: its text, and its path for messages. */
export interface SourceFile {
  path: string
  text: string
}

/**
 * Returns the first candidate that is `word` or a near miss of it, or undefined. A near miss has one missing, added or
 * changed character or two swapped neighbors, or differs only in capitalization, "-", "_" and spaces. The cost is
 * linear in the length of the arguments.
 */
export function nearMiss(word: string, candidates: Iterable<string>): string | undefined {
  for (const candidate of candidates) {
    if (bareLetters(candidate) === bareLetters(word) || isOneEditApart(candidate, word)) return candidate
  }
  return undefined
}

/** Returns `; did you mean "x"?` with the near miss, cleaned as foreign text; an empty text if there is none. */
export function didYouMean(word: string, candidates: Iterable<string>): string {
  const candidate = nearMiss(word, candidates)
  return candidate === undefined ? '' : `; did you mean "${cleanForeignText(candidate, 64)}"?`
}

function bareLetters(word: string): string {
  return word.toLowerCase().replace(/[-_ ]/g, '')
}

function isOneEditApart(a: string, b: string): boolean {
  if (Math.abs(a.length - b.length) > 1) return false
  const shorter = Math.min(a.length, b.length)
  let start = 0
  while (start < shorter && a[start] === b[start]) start++
  let end = 0
  while (end < shorter - start && a.at(-1 - end) === b.at(-1 - end)) end++
  const left = a.slice(start, a.length - end)
  const right = b.slice(start, b.length - end)
  return Math.max(left.length, right.length) <= 1 || (left.length === 2 && left === [...right].toReversed().join(''))
}
