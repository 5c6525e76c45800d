import {
  type Document,
  type DocumentOptions,
  isAlias,
  isCollection,
  isNode,
  isScalar,
  Lexer,
  LineCounter,
  type ParseOptions,
  Parser,
  parseDocument,
  type Scalar,
  type SchemaOptions,
  visit,
  type YAMLError,
  type YAMLWarning,
} from 'yaml'
import { HubError } from './errors.ts'

/** The most bytes that clients accept in each file (docs/contracts.md, "Limits, timeouts, retries"). */
export const MAX_PLUGIN_YAML_BYTES = 32 * 1024
export const MAX_PLAN_BYTES = 64 * 1024
const MAX_PLAN_LEXEMES = 32 * 1024
export const MAX_ALIASES = 100
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

/** Characters that YAML parsers do not accept, or that only some parsers read as the end of a line. */
export const STRANGE =
  /\r(?!\n)|[^\t\n\r\x20-\x7e\u{a0}-\u{2027}\u{202a}-\u{d7ff}\u{e000}-\u{fefe}\u{ff00}-\u{fffc}\u{10000}-\u{10ffff}]/u

/** Throws HubError 400 for a file that clients would refuse for its size. */
export function requireYamlSize(path: string, bytes: number, most: number): void {
  if (bytes <= most) return
  throw new HubError(400, `${path} has ${bytes} bytes: shorten it to ${most} bytes, the most that clients accept.`)
}

/**
 * Throws HubError 400 for a text that is nested more deeply than clients accept, because parsing could exhaust the stack,
 * or that has more lexemes than `maxLexemes`.
 */
export function requireShallowYaml(text: string, path: string, maxLexemes = Number.POSITIVE_INFINITY): void {
  const parser = new Parser()
  let lexemes = 0
  for (const lexeme of new Lexer().lex(text.replace(/^\uFEFF/, ''))) {
    lexemes++
    if (lexemes > maxLexemes)
      throw new HubError(400, `${path} has more than ${maxLexemes} words and signs: shorten it.`)
    for (const _ of parser.next(lexeme));
    if (parser.stack.length > MAX_LEVELS && parser.stack.filter(token => 'items' in token).length > MAX_LEVELS)
      throw new HubError(400, `${path} has more than ${MAX_LEVELS} levels of nesting: reduce the nesting.`)
  }
}

/**
 * Parses a YAML file whose scalars are all text. Throws HubError 400 if the file is nested too deeply, is not exactly one
 * YAML document, or uses aliases. The last two errors contain the position.
 */
export function parseYamlDocument(text: string, path: string): Document.Parsed {
  requireShallowYaml(text, path)
  return parseOne(text, path, { schema: 'failsafe' }, findAlias)
}

/**
 * Parses the YAML 1.2 file that clients read as a plan. Throws HubError 400 for what clients refuse: characters and tags
 * outside YAML's core schema, directives, keys that are repeated or not text, too many words or levels, and aliases that
 * have no anchor or that make the file too long when they are written out. A date without quotes is a Date.
 */
export function parsePlainYaml(text: string, path: string): { document: Document.Parsed; value: unknown } {
  const { index } = STRANGE.exec(text.replace(/^\uFEFF/, '')) ?? {}
  if (index !== undefined)
    throw new HubError(
      400,
      `${path} has a character in line ${text.slice(0, index).split('\n').length} that YAML parsers refuse or interpret differently.`,
    )
  requireShallowYaml(text, path, MAX_PLAN_LEXEMES)
  const options = {
    version: '1.2',
    schema: 'core',
    merge: false,
    resolveKnownTags: false,
    stringKeys: true,
    customTags: ['timestamp'],
  } satisfies SchemaOptions & DocumentOptions & ParseOptions
  const document = parseOne(text, path, options, findNotPlain)
  if (document.directives.yaml.explicit) throw new HubError(400, `${path} has a directive (%): remove it.`)
  const value = plainValueOf(document, path)
  if (countValues(value, MAX_PLAN_LEXEMES) > MAX_PLAN_LEXEMES)
    throw new HubError(400, `${path} has more than ${MAX_PLAN_LEXEMES} values once its aliases (*) are written out.`)
  return { document, value }
}

function parseOne(
  text: string,
  path: string,
  options: ParseOptions & DocumentOptions & SchemaOptions,
  find: (document: Document.Parsed) => Problem | undefined,
): Document.Parsed {
  const lineCounter = new LineCounter()
  const document = parseDocument(text, { ...options, prettyErrors: false, logLevel: 'error', lineCounter })
  const [error] = document.errors
  const problem = error === undefined ? find(document) : { sentence: describeError(error), offset: error.pos[0] }
  if (problem === undefined) return document
  const { line, col } = lineCounter.linePos(problem.offset)
  throw new HubError(400, `${path}, line ${line}, column ${col}: ${problem.sentence}.`)
}

function plainValueOf(document: Document.Parsed, path: string): unknown {
  try {
    return document.toJS({ maxAliasCount: -1 })
  } catch {
    throw new HubError(400, `${path} has an alias (*) without its anchor: write the value out.`)
  }
}

/** Counts keys and values, in each place where an alias repeats them. Stops soon after `most`. */
function countValues(value: unknown, most: number): number {
  const open = [value]
  let count = 0
  for (; open.length > 0 && count <= most; count++) {
    const next = open.pop()
    if (Array.isArray(next)) open.push(...next)
    else if (typeof next === 'object' && next !== null) open.push(...Object.entries(next).flat())
  }
  return count
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

/** The parser's own sentence, without its code excerpt and its advice for programmers. */
function describeError({ code, message }: YAMLError | YAMLWarning): string {
  if (code === 'MULTIPLE_DOCS') return 'a second YAML document starts here, but only one is allowed'
  const [sentence = ''] = message.replace(/(["'])quote/, '$1 quote').split('\n')
  return `invalid YAML: ${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}`
}

function findAlias(document: Document.Parsed): Problem | undefined {
  let found: Problem | undefined
  visit(document, {
    Alias: (_, { range }) => {
      found = { sentence: 'aliases (*) are not allowed: write the value out', offset: range?.[0] ?? 0 }
      return visit.BREAK
    },
  })
  return found
}

function findNotPlain(document: Document.Parsed): Problem | undefined {
  const [warning] = document.warnings
  if (warning !== undefined) return { sentence: describeError(warning), offset: warning.pos[0] }
  let found: Problem | undefined
  let aliases = 0
  visit(document, {
    Alias: (_, { range }) => {
      aliases++
      if (aliases <= MAX_ALIASES) return undefined
      found = { sentence: `more than ${MAX_ALIASES} aliases (*)`, offset: range?.[0] ?? 0 }
      return visit.BREAK
    },
    Pair: (_, { key }) => {
      if (isScalar(key) && key.value !== '__proto__') return undefined
      found = { sentence: 'a key must be text, and not "__proto__"', offset: (isNode(key) && key.range?.[0]) || 0 }
      return visit.BREAK
    },
  })
  return found
}
