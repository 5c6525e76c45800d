import type { z } from 'zod/mini'
import { cleanForeignText } from '../text.ts'
import { didYouMean, type FoundProblem, firstProblems, nearMiss, problemAt, type SourceProblem } from './problems.ts'
import type { YamlPath, YamlSource } from './source.ts'

export type Issue = z.core.$ZodIssue

/** The words that messages use for a kind of document and its parts. */
export interface DocumentWords {
  /** The whole document: "the plan". */
  readonly document: string
  /** Returns how a sentence about `path` begins, and how many keys of the path this covers: `step "up": ` and 2. */
  subjectOf(path: YamlPath, value: unknown): { prefix: string; covers: number }
  /** Returns the keys that the map at `path` accepts. */
  keysAt(path: YamlPath, value: unknown): readonly string[]
}

/**
 * Turns a schema's issues with one document into sentences at their positions. A check that goes beyond the type must
 * pass its own message as `error`, because zod/mini has no messages.
 */
export class SchemaComplaints {
  readonly #source: YamlSource
  readonly #words: DocumentWords

  constructor(source: YamlSource, words: DocumentWords) {
    this.#source = source
    this.#words = words
  }

  /**
   * Returns the first `MAX_REPORTED_PROBLEMS` problems, in the order of the file. If the file is a different document
   * altogether, which may contain secrets, returns one problem that quotes nothing from it.
   */
  problemsOf(issues: readonly Issue[]): SourceProblem[] {
    const known = this.#words.keysAt([], this.#source.value)
    if (isAnotherDocument(this.#source.value, known)) return [this.#anotherDocument(known)]
    return firstProblems(issues.flatMap(issue => this.#issueProblems(issue)))
  }

  #anotherDocument(known: readonly string[]): SourceProblem {
    const rule = `${this.#words.document} must be a map (accepted keys: ${known.join(', ')})`
    return problemAt(this.#source.positionOf([]), `${rule}, but none of these keys was found: is this the right file?`)
  }

  #issueProblems(issue: Issue): FoundProblem[] {
    const { path, code } = issue
    if (code === 'unrecognized_keys') {
      return issue.keys.map(key => ({
        at: this.#source.positionOfKey([...path, key]),
        sentence: () => this.#unknownKey(path, key),
      }))
    }
    const at = code === 'invalid_key' ? this.#source.positionOfKey(path) : this.#source.positionOf(path)
    const found = (): unknown => valueAt(this.#source.value, path)
    return [{ at, sentence: () => `${this.#nameOf(path)} ${complaint(issue, found())}` }]
  }

  #unknownKey(path: YamlPath, key: string): string {
    const known = this.#words.keysAt(path, this.#source.value)
    const hint = didYouMean(key, known) || ` (accepted keys: ${known.join(', ')})`
    return `${this.#nameOf(path)}: unknown key "${cleanForeignText(key, 60)}"${hint}`
  }

  #nameOf(path: YamlPath): string {
    const { prefix, covers } = this.#words.subjectOf(path, this.#source.value)
    const rest = path.slice(covers)
    if (rest.length === 0) return prefix === '' ? this.#words.document : prefix.replace(/: $/, '')
    const keys = rest.map((key, index) =>
      typeof key === 'number' ? `[${key}]` : `${index > 0 ? '.' : ''}${String(key)}`,
    )
    return prefix + cleanForeignText(keys.join(''), 200)
  }
}

/** Returns the value at `path` in a parsed document, or undefined. */
export function valueAt(value: unknown, path: YamlPath): unknown {
  return path.reduce<unknown>(
    (at, key) =>
      typeof at === 'object' && at !== null && Object.hasOwn(at, key) ? at[key as keyof typeof at] : undefined,
    value,
  )
}

/**
 * True if the value is not a map, or is a map whose keys include neither an accepted key nor a near miss of one. False
 * for an empty map.
 */
function isAnotherDocument(value: unknown, known: readonly string[]): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return true
  const keys = Object.keys(value)
  return keys.length > 0 && !keys.some(key => known.includes(key) || nearMiss(key, known) !== undefined)
}

function complaint(issue: Issue, found: unknown): string {
  if (issue.code === 'invalid_key') return `is not an accepted name: it ${issue.issues[0]?.message ?? 'must be text'}`
  if (issue.code === 'custom' && (found ?? null) === null) return issue.message
  if (found === undefined) return `is missing${choices(issue)}`
  if (issue.code === 'invalid_type') return wrongType(issue.expected, found)
  if (issue.code === 'invalid_value')
    return `must be ${listed(issue.values)}, but found ${shown(found)}${nearValue(issue.values, found)}`
  return typeof found === 'object' && found !== null ? issue.message : `${issue.message}, but found ${shown(found)}`
}

function choices(issue: Issue): string {
  return issue.code === 'invalid_value' ? `: it must be ${listed(issue.values)}` : ''
}

function wrongType(expected: string, found: unknown): string {
  const isQuotable = found instanceof Date || typeof found === 'number' || typeof found === 'boolean'
  const hint = expected === 'string' && isQuotable ? ': put quotes around it' : ''
  return `must be ${TYPE_WORDS[expected] ?? expected}, but found ${shown(found)}${hint}`
}

const TYPE_WORDS: Readonly<Record<string, string>> = {
  string: 'text',
  array: 'a list',
  tuple: 'a list',
  object: 'a map of keys and values',
  record: 'a map of keys and values',
  map: 'a map of keys and values',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
}

function nearValue(values: readonly unknown[], found: unknown): string {
  return typeof found === 'string' ? didYouMean(found, values.map(String)) : ''
}

function listed(values: readonly unknown[]): string {
  return [...new Set(values.map(String))].join(' or ')
}

function shown(value: unknown): string {
  if (typeof value === 'string') return `"${cleanForeignText(value, 60)}"`
  if (value === null) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  if (value instanceof Date) return 'a date'
  return typeof value === 'object' ? 'a map' : `the ${typeof value} ${String(value)}`
}

/** Returns the keys that `schema` lists for the map at `path`; none if the schema lists no keys there. */
export function keysOfSchema(schema: z.core.$ZodType | undefined, path: readonly PropertyKey[]): string[] {
  const { def } = (schema as z.core.$ZodTypes | undefined)?._zod ?? {}
  switch (def?.type) {
    case 'object': {
      const [key, ...rest] = path
      if (key === undefined) return Object.keys(def.shape)
      return Object.hasOwn(def.shape, key) ? keysOfSchema(def.shape[String(key)], rest) : []
    }
    case 'record':
      return path.length === 0 ? [] : keysOfSchema(def.valueType, path.slice(1))
    case 'lazy':
      return keysOfSchema(def.getter(), path)
    case 'optional':
    case 'default':
    case 'prefault':
      return keysOfSchema(def.innerType, path)
    default:
      return []
  }
}
