import {
  type Alias,
  Composer,
  type CST,
  type Document,
  type DocumentOptions,
  type ErrorCode,
  isAlias,
  isCollection,
  isMap,
  isPair,
  isScalar,
  Lexer,
  LineCounter,
  type Node,
  type Pair,
  type ParseOptions,
  Parser,
  type SchemaOptions,
  type YAMLMap,
} from 'yaml'
import { OPERATOR_YAML_LIMITS, type YamlLimits } from '../identifiers.ts'
import { cleanForeignText } from '../text.ts'
import { MAX_REPORTED_PROBLEMS, problemAt, type SourcePosition, type SourceProblem } from './problems.ts'

const STRICT_YAML = {
  version: '1.2',
  schema: 'core',
  merge: false,
  resolveKnownTags: false,
  stringKeys: true,
  uniqueKeys: false,
  // Readers of YAML 1.1 take a date for a date, so it is not text here either.
  customTags: ['timestamp'],
} satisfies YamlOptions

/** Keys and indexes from the root of a document to one of its values. */
export type YamlPath = readonly PropertyKey[]

/** A YAML text with its value and the positions of everything in it. */
export interface YamlSource {
  /** The problems of the text itself, in the order of the text. */
  readonly problems: readonly SourceProblem[]
  /** Undefined if the parser refuses the text, or an alias in it. A date without quotes is a Date. */
  readonly value: unknown
  /** Returns the start of the value at `path`; if there is none, the start of its closest ancestor. */
  positionOf(path: YamlPath): SourcePosition
  /** Returns the start of the last key of `path`; if there is none, the same position as `positionOf`. */
  positionOfKey(path: YamlPath): SourcePosition
}

/**
 * Parses one YAML 1.2 document (core schema) strictly, and pauses at each `yield`. Reports as problems: tags outside
 * the core schema, directives, more than one document, unreadable characters, any excess over `limits` or
 * `MAX_YAML_LEVELS`, aliases that have no anchor or exceed the limits when they are written out, and keys that are
 * repeated, `__proto__` or not text. Reports only the first `MAX_REPORTED_PROBLEMS`, and only the first mistake of a
 * text that is not valid YAML. Never throws because of the text.
 */
export function* parseYamlSource(
  text: string,
  file: string,
  limits: YamlLimits = OPERATOR_YAML_LIMITS,
): Generator<void, YamlSource> {
  if (Buffer.byteLength(text) > limits.bytes)
    return unreadable(file, `the file must be at most ${limits.bytes} bytes, but found more`)
  const stranger = unreadableCharacter(text)
  if (stranger !== undefined)
    return unreadable(file, `the file must be UTF-8 text with LF or CRLF line endings, but it contains ${stranger}`)
  const plain = text.replace(/^\uFEFF/, '')
  const composed = yield* composeYaml(plain, limits, STRICT_YAML)
  yield
  const mistake = firstSyntaxMistake(composed.complaints, plain)
  return new ParsedSource(composed, { file, mistake, limits })
}

function unreadable(file: string, message: string): YamlSource {
  const start = { file, line: 1, column: 1 }
  return {
    problems: [problemAt(start, message)],
    value: undefined,
    positionOf: () => start,
    positionOfKey: () => start,
  }
}

class ParsedSource implements YamlSource {
  readonly problems: readonly SourceProblem[]
  readonly value: unknown
  readonly #file: string
  readonly #root: Node | null
  readonly #lines: LineCounter

  constructor(
    composed: ComposedYaml,
    { file, mistake, limits }: { file: string; mistake: SyntaxFinding | undefined; limits: YamlLimits },
  ) {
    this.#file = file
    this.#lines = composed.lines
    this.#root = composed.document?.contents ?? null
    const walked = new NodeWalk(this.#root, limits.lexemes)
    this.problems = (mistake === undefined ? [...syntaxFindings(composed), ...walked.findings] : [mistake])
      .toSorted((a, b) => a.offset - b.offset)
      .slice(0, MAX_REPORTED_PROBLEMS)
      .map(({ message, offset }) => problemAt(this.#positionAt(offset), message))
    this.value = isSound(composed) && walked.isReadable ? composed.document?.toJS({ maxAliasCount: -1 }) : undefined
  }

  positionOf(path: YamlPath): SourcePosition {
    let node: unknown = this.#root
    for (const key of path) {
      const child = childNode(node, key)
      if (offsetOf(child) === undefined) break
      node = child
    }
    return this.#positionAt(offsetOf(node) ?? 0)
  }

  positionOfKey(path: YamlPath): SourcePosition {
    let parent: unknown = this.#root
    for (const key of path.slice(0, -1)) parent = childNode(parent, key)
    const offset = offsetOf(keyNodeOf(parent, path.at(-1)))
    return offset === undefined ? this.positionOf(path) : this.#positionAt(offset)
  }

  #positionAt(offset: number): SourcePosition {
    const { line, col } = this.#lines.linePos(offset)
    return { file: this.#file, line: Math.max(line, 1), column: Math.max(col, 1) }
  }
}

interface SyntaxFinding {
  readonly message: string
  readonly offset: number
}

function isSound({ complaints }: ComposedYaml): boolean {
  return complaints.every(({ isWarning }) => isWarning)
}

function syntaxFindings({ document, complaints }: ComposedYaml): SyntaxFinding[] {
  const versionDirective = document?.directives.yaml.explicit
    ? [{ message: 'directives (%) are not accepted: remove them', offset: 0 }]
    : []
  const reported = complaints.map(complaint => ({
    message: yamlComplaintSentence(complaint),
    offset: complaint.offset,
  }))
  return [...versionDirective, ...reported]
}

/** Finds what the parser accepts but we do not. Visits the nodes in the order of the text, at most 32 levels deep. */
class NodeWalk {
  readonly findings: SyntaxFinding[] = []
  /** False if an alias cannot be replaced, or if replacing all of them costs too much. */
  isReadable = true
  /** The number of nodes below each anchor once aliases are written out; 0 until the anchored node ends. */
  readonly #sizes = new Map<string, number>()
  #aliases = 0

  constructor(root: Node | null, maxNodes: number) {
    if (this.#visit(root) > maxNodes)
      this.#refuse(root, `the file has more than ${maxNodes} values once its aliases (*) are written out`)
  }

  #visit(node: unknown): number {
    if (isAlias(node)) return this.#sizeOf(node)
    this.findings.push(...keyFindings(node))
    const anchor = isScalar(node) || isCollection(node) ? node.anchor : undefined
    if (anchor !== undefined) this.#sizes.set(anchor, 0)
    const size = childNodes(node).reduce<number>((sum, child) => sum + this.#visit(child), 1)
    if (anchor !== undefined) this.#sizes.set(anchor, size)
    return size
  }

  #sizeOf(alias: Alias): number {
    this.#aliases++
    if (this.#aliases === MAX_ALIAS_COUNT + 1)
      this.#refuse(alias, `the file has more than ${MAX_ALIAS_COUNT} aliases (*)`)
    const size = this.#sizes.get(alias.source)
    if (size === undefined) this.#refuse(alias, 'this alias (*) has no anchor (&) before it')
    if (size === 0) this.#refuse(alias, 'this alias (*) stands for a value that contains it')
    return size ?? 0
  }

  #refuse(node: unknown, message: string): void {
    this.findings.push(finding(node, message))
    this.isReadable = false
  }
}

function keyFindings(node: unknown): SyntaxFinding[] {
  if (!isMap(node)) return []
  const seen = new Set<string>()
  return node.items.flatMap(({ key }) => {
    if (isAlias(key)) return [finding(key, 'keys must be text')]
    const name = keyText(key)
    const repeated = seen.has(name)
    seen.add(name)
    if (repeated) return [finding(key, 'this key is already in the same map: remove or rename one of the two')]
    return name === '__proto__' ? [finding(key, 'the key "__proto__" is not accepted')] : []
  })
}

function childNodes(node: unknown): unknown[] {
  if (!isCollection(node)) return []
  return node.items.flatMap(item => (isPair(item) ? [item.key, item.value] : [item]))
}

function childNode(node: unknown, key: PropertyKey): unknown {
  if (isMap(node)) return pairAt(node, key)?.value
  return isCollection(node) && typeof key === 'number' ? node.items[key] : undefined
}

function keyNodeOf(node: unknown, key: PropertyKey | undefined): unknown {
  return isMap(node) ? pairAt(node, key)?.key : undefined
}

function finding(node: unknown, message: string): SyntaxFinding {
  return { message, offset: offsetOf(node) ?? 0 }
}

function offsetOf(node: unknown): number | undefined {
  return isScalar(node) || isCollection(node) || isAlias(node) ? node.range?.[0] : undefined
}

export const MAX_YAML_LEVELS = 32
/** Enough for the honest use of anchors, too few for a bomb. */
export const MAX_ALIAS_COUNT = 100
/** After this many mistakes, the rest of a text is not read: nobody needs a longer list. */
export const MAX_YAML_COMPLAINTS = 100

/** This many lexemes take less than a millisecond. */
const LEXEMES_BETWEEN_PAUSES = 256

/** A mistake in a text, and its position. */
interface YamlComplaint {
  /** `RESOURCE_EXHAUSTION` if the text exceeds a limit; in that case, this complaint is the last one. */
  readonly code: ErrorCode
  readonly message: string
  readonly offset: number
  /** Whether the library only warns about the mistake. */
  readonly isWarning: boolean
}

/** One document as the library composes it. */
export interface ComposedYaml {
  /** Undefined if the text exceeds a limit. */
  readonly document: Document.Parsed | undefined
  readonly complaints: readonly YamlComplaint[]
  readonly lines: LineCounter
}

type YamlOptions = ParseOptions & DocumentOptions & SchemaOptions

/**
 * Composes one YAML document, and pauses at each `yield`. The cost is linear in the length of the text, whatever the
 * text contains. Used directly, the library takes minutes for 32 KiB of nested errors. Stops after `limits.lexemes`
 * lexemes, beyond `MAX_YAML_LEVELS` levels of nesting, after `MAX_YAML_COMPLAINTS` mistakes, and at a second document.
 * Never throws because of the text.
 */
export function* composeYaml(text: string, limits: YamlLimits, options: YamlOptions): Generator<void, ComposedYaml> {
  const lines = new LineCounter()
  const complaints = new Complaints()
  try {
    const document = yield* compose(limitedTokens(text, limits, lines), complaints, { options, end: text.length })
    return { document, complaints: complaints.list, lines }
  } catch (error) {
    if (!(error instanceof Excess)) throw error
    complaints.close(error)
    return { document: undefined, complaints: complaints.list, lines }
  }
}

function* compose(
  tokens: Iterable<CST.Token | undefined>,
  complaints: Complaints,
  { options, end }: { options: YamlOptions; end: number },
): Generator<void, Document.Parsed | undefined> {
  const composer = new Composer(options)
  // The library's own handler would create an error object for each of 100,000 mistakes, and no option replaces it.
  Reflect.set(composer, 'onError', complaints.take)
  let hasDocument = false
  for (const token of tokens) {
    yield
    if (token === undefined) continue
    const complaint = tokenComplaint(token, hasDocument)
    if (complaint !== undefined) complaints.add({ ...complaint, offset: token.offset, isWarning: false })
    if (complaint?.code === 'MULTIPLE_DOCS') break
    if (complaint === undefined) for (const _ of composer.next(token));
    hasDocument ||= token.type === 'document'
  }
  const [document] = composer.end(true, end)
  return document
}

function tokenComplaint(token: CST.Token, hasDocument: boolean): Pick<YamlComplaint, 'code' | 'message'> | undefined {
  if (token.type === 'error') return { code: 'UNEXPECTED_TOKEN', message: token.message }
  if (token.type === 'document' && hasDocument) return { code: 'MULTIPLE_DOCS', message: 'Another document' }
  if (token.type === 'doc-end' && !hasDocument)
    return { code: 'UNEXPECTED_TOKEN', message: 'Document end (...) before a document' }
  return undefined
}

/**
 * Also yields undefined, as a pause: the parser yields a whole document as one token, after the document's last lexeme.
 */
function* limitedTokens(text: string, limits: YamlLimits, lines: LineCounter): Generator<CST.Token | undefined, void> {
  const parser = new Parser(lines.addNewLine)
  let lexemes = 0
  lines.addNewLine(0)
  for (const lexeme of new Lexer().lex(text)) {
    lexemes++
    if (lexemes % LEXEMES_BETWEEN_PAUSES === 0) yield undefined
    if (lexemes > limits.lexemes)
      throw new Excess(`more than ${limits.lexemes} words, signs, spaces and line endings`, parser.offset)
    yield* parser.next(lexeme)
    if (isTooDeep(parser.stack)) throw new Excess(`more than ${MAX_YAML_LEVELS} levels of nesting`, parser.offset)
  }
  yield* parser.end()
}

function isTooDeep(open: readonly CST.Token[]): boolean {
  return open.length > MAX_YAML_LEVELS && open.filter(token => 'items' in token).length > MAX_YAML_LEVELS
}

class Excess {
  readonly message: string
  readonly offset: number

  constructor(message: string, offset: number) {
    this.message = message
    this.offset = offset
  }
}

type ErrorSource = number | readonly [number, number, number?] | { readonly offset: number }

class Complaints {
  readonly list: YamlComplaint[] = []

  /** Replaces the library's error handler. Throws after too many mistakes: only an exception stops the library. */
  readonly take = (source: ErrorSource, code: ErrorCode, message: string, isWarning = false): void => {
    this.add({ code, message, offset: errorOffset(source), isWarning })
  }

  add(complaint: YamlComplaint): void {
    if (this.list.length >= MAX_YAML_COMPLAINTS)
      throw new Excess(`more than ${MAX_YAML_COMPLAINTS} mistakes`, complaint.offset)
    this.list.push(complaint)
  }

  close({ message, offset }: Excess): void {
    this.list.push({ code: 'RESOURCE_EXHAUSTION', message, offset, isWarning: false })
  }
}

function errorOffset(source: ErrorSource): number {
  if (typeof source === 'number') return source
  return 'offset' in source ? source.offset : source[0]
}

/** Without an index, finding the positions of thousands of mistakes in one map would take quadratic time. */
const indexes = new WeakMap<YAMLMap, ReadonlyMap<PropertyKey, Pair>>()

/** Returns a map's first pair with this key, or undefined. */
function pairAt(map: YAMLMap, key: PropertyKey | undefined): Pair | undefined {
  if (key === undefined) return undefined
  const index = indexes.get(map) ?? indexOf(map)
  indexes.set(map, index)
  return index.get(key)
}

/** Returns a key as text; a key that is not a scalar becomes the empty text. */
function keyText(key: unknown): string {
  return isScalar(key) ? String(key.value) : ''
}

function indexOf(map: YAMLMap): ReadonlyMap<PropertyKey, Pair> {
  // Of several pairs with the same key, a Map keeps the last. In the reversed list, that is the first pair of the YAML
  // map.
  return new Map(map.items.map((pair): [PropertyKey, Pair] => [keyText(pair.key), pair]).reverse())
}

/** A mistake in a text, and its position. */
interface SyntaxMistake {
  readonly message: string
  readonly offset: number
}

/**
 * Returns only the first mistake. The library misreads the text after that mistake, so its other complaints mislead.
 */
function firstSyntaxMistake(complaints: readonly YamlComplaint[], text: string): SyntaxMistake | undefined {
  const [first, ...rest] = complaints.filter(isSyntax).toSorted((a, b) => a.offset - b.offset)
  if (first === undefined) return undefined
  const isTwoLines = rest.some(({ code, offset }) => code === 'MULTILINE_IMPLICIT_KEY' && offset === first.offset)
  const indented = first.code === 'BLOCK_AS_IMPLICIT_KEY' && isTwoLines ? nextLine(text, first.offset) : undefined
  return indented === undefined
    ? { message: yamlComplaintSentence(first), offset: first.offset }
    : { message: TOO_FAR, offset: indented }
}

const TOO_FAR = 'not valid YAML: this line is indented further than the key above it, which already has a value'

/** The complaints about YAML that is valid but not accepted here. */
const NOT_SYNTAX: ReadonlySet<YamlComplaint['code']> = new Set([
  'BAD_DIRECTIVE',
  'MULTIPLE_DOCS',
  'NON_STRING_KEY',
  'RESOURCE_EXHAUSTION',
  'TAG_RESOLVE_FAILED',
])

function isSyntax({ code, isWarning }: YamlComplaint): boolean {
  return !isWarning && !NOT_SYNTAX.has(code)
}

/**
 * Returns the offset of the line that the library reads as a part of the value above it. The library complains at that
 * value. Returns undefined for a value in quotes or brackets.
 */
function nextLine(text: string, offset: number): number | undefined {
  const [found] = /^[^\n"'[{][^\n]*\n\s*(?=\S)/.exec(text.slice(offset)) ?? []
  return found === undefined ? undefined : offset + found.length
}

/**
 * The characters that YAML does not accept; U+FFFD, which stands for bytes that are not UTF-8; and a carriage return
 * without a line feed, which ends a line for YAML but not for our parser.
 */
const UNREADABLE = /[^\t\n\r\x20-\x7e\x85\u{a0}-\u{d7ff}\u{e000}-\u{fffc}\u{10000}-\u{10ffff}]|\r(?!\n)/u

/**
 * Characters that end a line in YAML 1.1 but not in 1.2, and byte order marks after the first character, which only
 * some parsers skip.
 */
const READ_DIFFERENTLY = /[\x85\u2028\u2029]|(?<!^)\ufeff/u

/**
 * Returns the first character that cannot be read reliably, and its line: `U+0000 in line 3`. Undefined if there is
 * none.
 */
export function unreadableCharacter(text: string): string | undefined {
  return firstMatch(text, UNREADABLE)
}

/** Like `unreadableCharacter`, for characters that some YAML parsers read as the end of a line, or skip. */
export function ambiguousCharacter(text: string): string | undefined {
  return firstMatch(text, READ_DIFFERENTLY)
}

function firstMatch(text: string, pattern: RegExp): string | undefined {
  const match = pattern.exec(text)
  if (match === null) return undefined
  const line = text.slice(0, match.index).split('\n').length
  return `${characterName(match[0])} in line ${line}`
}

function characterName(character: string): string {
  if (character === '\ufffd') return 'U+FFFD, or bytes that are not UTF-8,'
  if (character === '\r') return 'a carriage return without a line feed'
  return `U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`
}

/**
 * Turns the YAML parser's complaint into a sentence for the author of the file. Quotes nothing from the file, which may
 * be the wrong file and contain secrets.
 */
function yamlComplaintSentence({ code, message }: Pick<YamlComplaint, 'code' | 'message'>): string {
  switch (code) {
    case 'MULTIPLE_DOCS':
      return 'the file must contain only one YAML document, but another begins here'
    case 'TAB_AS_INDENT':
      return 'tabs are not accepted as indentation: use spaces'
    case 'RESOURCE_EXHAUSTION':
      return `the file has ${message}: shorten or simplify it`
    case 'NON_STRING_KEY':
      return 'keys must be text'
    case 'TAG_RESOLVE_FAILED':
      return 'tags (!) beyond the YAML core schema are not accepted: remove the tag'
    case 'BAD_DIRECTIVE':
      return 'directives (%) are not accepted: remove them'
    case 'BAD_DQ_ESCAPE':
      return 'not valid YAML: invalid escape sequence in double quotes'
    default:
      return `not valid YAML: ${lowerFirst(withoutQuote(message))}`
  }
}

/** Removes the text that the parser quotes from the file: everything after a word and a colon. */
function withoutQuote(message: string): string {
  return cleanForeignText(message.replace(/(?<=\w): .*/s, ''), 200)
}

function lowerFirst(message: string): string {
  return message.charAt(0).toLowerCase() + message.slice(1)
}
