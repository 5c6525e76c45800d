import { type Alias, type Document, Lexer, LineCounter, Parser, parseDocument, visit, type YAMLError } from 'yaml'
import { HubError } from './errors.ts'

/** The most bytes that clients accept in each file (docs/contracts.md, "Limits, timeouts, retries"). */
export const MAX_PLUGIN_YAML_BYTES = 32 * 1024
export const MAX_PLAN_BYTES = 64 * 1024
const MAX_LEVELS = 32

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
  requireShallowYaml(text, path)
  const lineCounter = new LineCounter()
  const document = parseDocument(text, { schema, prettyErrors: false, logLevel: 'error', lineCounter })
  const problem = firstProblem(document)
  if (problem === undefined) return document.toJS({ maxAliasCount: 0 })
  const { line, col } = lineCounter.linePos(problem.offset)
  throw new HubError(400, `${path}, line ${line}, column ${col}: ${problem.sentence}.`)
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
