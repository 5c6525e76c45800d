import type { z } from 'zod/mini'
import { cleanForeignText } from '../foreign-text.ts'
import { didYouMean, nearMiss } from './near-miss.ts'
import { MAX_REPORTED_PROBLEMS, type SourceProblem } from './source-problem.ts'
import type { YamlPath, YamlSource } from './yaml-source.ts'

type Issue = z.core.$ZodIssue

/** How a kind of document speaks about its parts. */
export interface DocumentWords {
  /** What stands for the whole: "the plan". */
  readonly document: string
  /** What begins a sentence about `path` and how much of the path it covers: `step "up": ` and 2. */
  subjectOf(path: YamlPath, value: unknown): { prefix: string; covers: number }
  /** The keys that the map at `path` may hold. */
  keysAt(path: YamlPath, value: unknown): readonly string[]
}

/**
 * A schema's complaints as sentences at the places they are about; at most `MAX_REPORTED_PROBLEMS`. A file that is another
 * one altogether, which may hold secrets, gets one complaint that quotes nothing of it. Checks beyond a type bring their own
 * words as `error`: zod/mini has none.
 */
export function schemaProblems(issues: readonly Issue[], source: YamlSource, words: DocumentWords): SourceProblem[] {
  const known = words.keysAt([], source.value)
  if (isAnotherDocument(source.value, known)) return [anotherDocumentProblem(source, words.document, known)]
  return issues
    .flatMap(issue => issueProblems(issue, source, words))
    .slice(0, MAX_REPORTED_PROBLEMS)
    .map(buildProblem => buildProblem())
}

/** What stands at `path` in a parsed document, or undefined. */
export function valueAt(value: unknown, path: YamlPath): unknown {
  return path.reduce<unknown>(
    (at, key) =>
      typeof at === 'object' && at !== null && Object.hasOwn(at, key) ? at[key as keyof typeof at] : undefined,
    value,
  )
}

/** Not a map, or one with strange keys only. */
function isAnotherDocument(value: unknown, known: readonly string[]): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return true
  const keys = Object.keys(value)
  return keys.length > 0 && !keys.some(key => known.includes(key) || nearMiss(key, known) !== undefined)
}

function anotherDocumentProblem(source: YamlSource, document: string, known: readonly string[]): SourceProblem {
  const message = `${document} must be a map with the keys ${known.join(', ')}, found none of them: is this the right file?`
  return { message, file: source.file, ...source.positionOf([]) }
}

function issueProblems(issue: Issue, source: YamlSource, words: DocumentWords): (() => SourceProblem)[] {
  if (issue.code !== 'unrecognized_keys') return [() => valueProblem(issue, source, words)]
  return issue.keys.map(key => () => unknownKeyProblem(issue, key, source, words))
}

function unknownKeyProblem(issue: Issue, key: string, source: YamlSource, words: DocumentWords): SourceProblem {
  const known = words.keysAt(issue.path, source.value)
  const holder = nameOf(issue.path, source, words)
  const hint = didYouMean(key, known) || `; its keys are ${known.join(', ')}`
  return {
    message: `${holder}: unknown key "${cleanForeignText(key, 60)}"${hint}`,
    file: source.file,
    ...source.positionOfKey([...issue.path, key]),
  }
}

function valueProblem(issue: Issue, source: YamlSource, words: DocumentWords): SourceProblem {
  const found = valueAt(source.value, issue.path)
  const name = nameOf(issue.path, source, words)
  const at = issue.code === 'invalid_key' ? source.positionOfKey(issue.path) : source.positionOf(issue.path)
  return { message: `${name} ${complaint(issue, found)}`, file: source.file, ...at }
}

function complaint(issue: Issue, found: unknown): string {
  if (issue.code === 'invalid_key') return `is not an accepted name: it ${issue.issues[0]?.message ?? 'must be text'}`
  if (found === undefined) return `is missing${choices(issue)}`
  if (issue.code === 'invalid_type') return wrongType(issue.expected, found)
  if (issue.code === 'invalid_value')
    return `must be ${listed(issue.values)}, found ${shown(found)}${nearValue(issue.values, found)}`
  return typeof found === 'object' && found !== null ? issue.message : `${issue.message}, found ${shown(found)}`
}

function choices(issue: Issue): string {
  return issue.code === 'invalid_value' ? `: it must be ${listed(issue.values)}` : ''
}

function wrongType(expected: string, found: unknown): string {
  const quotable = expected === 'string' && (typeof found === 'number' || typeof found === 'boolean')
  const hint = quotable ? ': put quotes around it' : ''
  return `must be ${TYPE_WORDS[expected] ?? expected}, found ${shown(found)}${hint}`
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
  return [...new Set(values.map(String))].join(', ')
}

function shown(value: unknown): string {
  if (typeof value === 'string') return `"${cleanForeignText(value, 60)}"`
  if (value === null) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'a map' : `the ${typeof value} ${String(value)}`
}

function nameOf(path: YamlPath, source: YamlSource, words: DocumentWords): string {
  const { prefix, covers } = words.subjectOf(path, source.value)
  const rest = path.slice(covers)
  if (rest.length === 0) return prefix === '' ? words.document : prefix.replace(/: $/, '')
  const keys = rest.map((key, index) =>
    typeof key === 'number' ? `[${key}]` : `${index > 0 ? '.' : ''}${String(key)}`,
  )
  return prefix + cleanForeignText(keys.join(''), 200)
}
