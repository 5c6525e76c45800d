import {
  Composer,
  type CST,
  type Document,
  type DocumentOptions,
  type ErrorCode,
  Lexer,
  LineCounter,
  type ParseOptions,
  Parser,
  type SchemaOptions,
} from 'yaml'
import type { YamlLimits } from '../limits.ts'

export const MAX_YAML_LEVELS = 32
/** After this many mistakes, the rest of a text is not read: nobody needs a longer list. */
export const MAX_YAML_COMPLAINTS = 100

/** This many lexemes take less than a millisecond. */
const LEXEMES_BETWEEN_PAUSES = 256

/** A mistake in a text, and its position. */
export interface YamlComplaint {
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

export type YamlOptions = ParseOptions & DocumentOptions & SchemaOptions

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

/** Thrown when the text exceeds a limit. */
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
    this.add({ code, message, offset: offsetOf(source), isWarning })
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

function offsetOf(source: ErrorSource): number {
  if (typeof source === 'number') return source
  return 'offset' in source ? source.offset : source[0]
}
