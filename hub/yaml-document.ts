import { type Alias, type Document, LineCounter, parseDocument, visit, type YAMLError } from 'yaml'
import { HubError } from './errors.ts'

/**
 * The value of a YAML file, all scalars as text where the schema is `failsafe`. Throws HubError 400 that says what is
 * wrong and where, when it is not one YAML document or uses aliases.
 */
export function parseYaml(text: string, path: string, schema: 'core' | 'failsafe' = 'core'): unknown {
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
  if (error !== undefined) return { sentence: describe(error), offset: error.pos[0] }
  const alias = findAlias(document)
  if (alias === undefined) return undefined
  return { sentence: 'aliases (*) are not accepted: write the value out instead', offset: alias.range?.[0] ?? 0 }
}

/** The parser's own sentence, without a code frame and without the advice that it has for programmers. */
function describe({ code, message }: YAMLError): string {
  if (code === 'MULTIPLE_DOCS') return 'the file must hold one YAML document, and another one begins here'
  const [sentence = ''] = message.replace(/(["'])quote/, '$1 quote').split('\n')
  return `not valid YAML: ${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}`
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
