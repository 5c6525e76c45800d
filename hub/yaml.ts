import {
  type Alias,
  type Document,
  isAlias,
  isCollection,
  isScalar,
  Lexer,
  LineCounter,
  Parser,
  parseDocument,
  type Scalar,
  visit,
  type YAMLError,
} from 'yaml'
import { HubError } from './errors.ts'

/** The most bytes that clients accept in each file (docs/contracts.md, "Limits, timeouts, retries"). */
export const MAX_PLUGIN_YAML_BYTES = 32 * 1024
export const MAX_PLAN_BYTES = 64 * 1024
const MAX_LEVELS = 32
/** Numbers with more digits are not the same for all readers. */
const MAX_DIGITS = 15
const TEXT_TAG = 'tag:yaml.org,2002:str'

/**
 * Plain scalars that are not text for every reader of YAML 1.1 and 1.2, such as PyYAML: numbers in any notation, words
 * for true, false and nothing, and dates.
 */
const NOT_TEXT = [
  /^[-+]?\d[\d_]*(?::[0-5]?\d)*(?:\.[\d_]*)?(?:e[-+]?\d+)?$/i,
  /^[-+]?\.(?:[\d_]+(?:e[-+]?\d+)?|inf|nan)$/i,
  /^[-+]?0(?:b[01_]+|o[0-7_]+|x[\da-f_]+)$/i,
  /^(?:true|false|yes|no|on|off|y|n|null|~|=|<<)?$/i,
  /^\d{4}-\d\d-\d\d$/,
  /^\d{4}-\d\d?-\d\d?(?:t|\s+)\d\d?:\d\d:\d\d/i,
]

/** Throws HubError 400 for a file that clients would refuse for its size. */
export function requireYamlSize(path: string, bytes: number, most: number): void {
  if (bytes <= most) return
  throw new HubError(400, `${path} has ${bytes} bytes: shorten it to ${most} bytes, the most that clients accept.`)
}

/** Throws HubError 400 for a text that is nested more deeply than clients accept: parsing could exhaust the stack. */
export function requireShallowYaml(text: string, path: string): void {
  const parser = new Parser()
  for (const lexeme of new Lexer().lex(text)) {
    for (const _ of parser.next(lexeme));
    if (parser.stack.length > MAX_LEVELS && parser.stack.filter(token => 'items' in token).length > MAX_LEVELS)
      throw new HubError(400, `${path} has more than ${MAX_LEVELS} levels of nesting: reduce the nesting.`)
  }
}

/**
 * Parses a YAML file; with the schema `failsafe`, all scalars are text. Throws HubError 400 if the file is nested too
 * deeply, is not exactly one YAML document, or uses aliases. The last two errors contain the position.
 */
export function parseYaml(text: string, path: string, schema: 'core' | 'failsafe' = 'core'): unknown {
  return parseYamlDocument(text, path, schema).toJS({ maxAliasCount: 0 })
}

/** Parses as `parseYaml` does, but returns the document. */
export function parseYamlDocument(text: string, path: string, schema: 'core' | 'failsafe'): Document.Parsed {
  requireShallowYaml(text, path)
  const lineCounter = new LineCounter()
  const document = parseDocument(text, { schema, prettyErrors: false, logLevel: 'error', lineCounter })
  const problem = firstProblem(document)
  if (problem === undefined) return document
  const { line, col } = lineCounter.linePos(problem.offset)
  throw new HubError(400, `${path}, line ${line}, column ${col}: ${problem.sentence}.`)
}

/**
 * Returns the text at `keys`; undefined if there is nothing. Throws HubError 400 for a value that some reader does not
 * take for this text.
 */
export function readText(
  document: Document.Parsed,
  keys: readonly (string | number)[],
  path: string,
): string | undefined {
  const node = nodeAt(document, keys)
  if (node === undefined) return undefined
  if (isText(node)) return String(node.value)
  throw notAlike(path, keys.join('.'), 'is not text for all YAML parsers')
}

/**
 * Returns the version in a plugin's description, as `readText` does. Also accepts a plain number that all readers print
 * alike, which is not so for a final zero after the point: Python prints `1.10` as `1.1`.
 */
export function readVersion(document: Document.Parsed, path: string): string | undefined {
  const node = nodeAt(document, ['version'])
  const written = isScalar(node) && node.type === 'PLAIN' && node.tag === undefined ? (node.source ?? '') : ''
  if (!/^\d+(?:\.\d+)?$/.test(written)) return readText(document, ['version'], path)
  if (/\.\d*0$/.test(written)) throw notAlike(path, 'version', `is the number ${written}, which loses its final 0`)
  if (/^(?:0\d|0\.0000)/.test(written) || written.replace('.', '').length > MAX_DIGITS)
    throw notAlike(path, 'version', 'is a number that YAML parsers read or print differently')
  return written
}

function nodeAt(document: Document.Parsed, keys: readonly (string | number)[]): unknown {
  return keys.reduce<unknown>((at, key) => {
    if (!isCollection(at) || !at.has(key)) return undefined
    const next = at.get(key, true) ?? null
    return isAlias(next) ? next.resolve(document) : next
  }, document.contents)
}

function isText(node: unknown): node is Scalar {
  if (!isScalar(node) || typeof node.value !== 'string') return false
  if (node.tag !== undefined) return node.tag === TEXT_TAG
  return node.type !== 'PLAIN' || !NOT_TEXT.some(form => form.test(node.source ?? ''))
}

function notAlike(path: string, field: string, problem: string): HubError {
  return new HubError(400, `The ${field} in ${path} ${problem}: quote it.`)
}

interface Problem {
  readonly sentence: string
  readonly offset: number
}

function firstProblem(document: Document.Parsed): Problem | undefined {
  const [error] = document.errors
  if (error !== undefined) return { sentence: describeError(error), offset: error.pos[0] }
  const alias = findAlias(document)
  if (alias === undefined) return undefined
  return { sentence: 'aliases (*) are not allowed: write the value out', offset: alias.range?.[0] ?? 0 }
}

/** The parser's own sentence, without its code excerpt and its advice for programmers. */
function describeError({ code, message }: YAMLError): string {
  if (code === 'MULTIPLE_DOCS') return 'a second YAML document starts here, but only one is allowed'
  const [sentence = ''] = message.replace(/(["'])quote/, '$1 quote').split('\n')
  return `invalid YAML: ${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}`
}

function findAlias(document: Document.Parsed): Alias | undefined {
  let found: Alias | undefined
  visit(document, {
    Alias: (_, alias) => {
      found ??= alias
      return visit.BREAK
    },
  })
  return found
}
