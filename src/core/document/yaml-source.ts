import {
  type Document,
  isAlias,
  isCollection,
  isMap,
  isPair,
  isScalar,
  LineCounter,
  type Node,
  parseDocument,
} from 'yaml'
import { MAX_SMALL_FILE_BYTES } from '../limits.ts'
import { problemAt, type SourcePosition, type SourceProblem } from './source-problem.ts'
import { yamlErrorSentence } from './yaml-error-sentence.ts'

export const MAX_YAML_LEVELS = 32

const STRICT_YAML = {
  version: '1.2',
  schema: 'core',
  merge: false,
  resolveKnownTags: false,
  stringKeys: true,
  uniqueKeys: false,
  prettyErrors: false,
} as const

/** Keys and indexes from the root of a document to one of its values. */
export type YamlPath = readonly PropertyKey[]

/** A YAML text with its value and the position of everything in it. */
export interface YamlSource {
  /** What is wrong with the text itself, in the order of the file. */
  readonly problems: readonly SourceProblem[]
  /** Undefined where the text is too broken to have a value. */
  readonly value: unknown
  /** Where the value at `path` starts; where there is none, the start of its closest ancestor. */
  positionOf(path: YamlPath): SourcePosition
  /** Where the key that ends `path` is written. */
  positionOfKey(path: YamlPath): SourcePosition
}

/**
 * Parses one YAML 1.2 document (core schema) strictly. Anchors, aliases, tags outside the core schema, directives, keys
 * that are not text, repeated keys, more than one document, more than `MAX_SMALL_FILE_BYTES` bytes, bytes that were not
 * UTF-8 (now U+FFFD) and nesting below `MAX_YAML_LEVELS` levels all become problems; it never throws because of the
 * text.
 */
export function parseYamlSource(text: string, file: string): YamlSource {
  if (Buffer.byteLength(text) > MAX_SMALL_FILE_BYTES)
    return unreadable(file, `the file must be at most ${MAX_SMALL_FILE_BYTES} bytes, found more`)
  const stranger = text.indexOf('\uFFFD')
  if (stranger !== -1)
    return unreadable(file, `the file must be UTF-8 text, found something else in line ${lineOf(text, stranger)}`)
  return new ParsedSource(text.replace(/^\uFEFF/, ''), file)
}

function lineOf(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length
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
  readonly #lines = new LineCounter()

  constructor(text: string, file: string) {
    this.#file = file
    const document = parseDocument(text, { ...STRICT_YAML, lineCounter: this.#lines })
    this.#root = document.contents
    const walked = walkNodes(this.#root)
    this.problems = [...syntaxFindings(document), ...walked.findings].map(({ message, offset }) =>
      problemAt(this.#positionAt(offset), message),
    )
    this.value = document.errors.length > 0 || !walked.plain ? undefined : document.toJS({ maxAliasCount: 0 })
  }

  positionOf(path: YamlPath): SourcePosition {
    let node: unknown = this.#root
    for (const key of path) {
      const child = childOf(node, key)
      if (offsetOf(child) === undefined) break
      node = child
    }
    return this.#positionAt(offsetOf(node) ?? 0)
  }

  positionOfKey(path: YamlPath): SourcePosition {
    let parent: unknown = this.#root
    for (const key of path.slice(0, -1)) parent = childOf(parent, key)
    const offset = offsetOf(keyNodeOf(parent, path.at(-1)))
    return offset === undefined ? this.positionOf(path) : this.#positionAt(offset)
  }

  #positionAt(offset: number): SourcePosition {
    const { line, col } = this.#lines.linePos(offset)
    return { file: this.#file, line: Math.max(line, 1), column: Math.max(col, 1) }
  }
}

interface Finding {
  readonly message: string
  readonly offset: number
}

function syntaxFindings(document: Document.Parsed): Finding[] {
  const versionDirective = document.directives.yaml.explicit
    ? [{ message: 'directives (%) are not accepted: remove them', offset: 0 }]
    : []
  const reported = [...document.errors, ...document.warnings].map(error => ({
    message: yamlErrorSentence(error),
    offset: error.pos[0],
  }))
  return [...versionDirective, ...reported]
}

interface Walked {
  readonly findings: readonly Finding[]
  /** No alias and no excessive depth, so that the value can be built. */
  readonly plain: boolean
}

function walkNodes(root: Node | null): Walked {
  const findings: Finding[] = []
  const open: { node: unknown; level: number }[] = [{ node: root, level: 1 }]
  let plain = true
  for (let entry = open.pop(); entry !== undefined; entry = open.pop()) {
    const { node, level } = entry
    findings.push(...nodeFindings(node))
    const tooDeep = isCollection(node) && level > MAX_YAML_LEVELS
    if (tooDeep) findings.push(finding(node, `nested deeper than ${MAX_YAML_LEVELS} levels`))
    if (tooDeep || isAlias(node)) plain = false
    else open.push(...childNodes(node).map(child => ({ node: child, level: level + 1 })))
  }
  return { findings, plain }
}

function nodeFindings(node: unknown): Finding[] {
  if (isAlias(node)) return [finding(node, 'aliases (*) are not accepted: write the value out instead')]
  const anchored = (isScalar(node) || isCollection(node)) && node.anchor !== undefined
  return [
    ...(anchored ? [finding(node, 'anchors (&) are not accepted: write the value out where it is used')] : []),
    ...keyFindings(node),
  ]
}

function keyFindings(node: unknown): Finding[] {
  if (!isMap(node)) return []
  const seen = new Set<string>()
  return node.items.flatMap(({ key }) => {
    const name = keyText(key)
    const repeated = seen.has(name)
    seen.add(name)
    if (repeated) return [finding(key, 'this key is already in the same map')]
    return name === '__proto__' ? [finding(key, 'the key "__proto__" is not accepted')] : []
  })
}

function childNodes(node: unknown): unknown[] {
  if (!isCollection(node)) return []
  return node.items.flatMap(item => (isPair(item) ? [item.key, item.value] : [item]))
}

function childOf(node: unknown, key: PropertyKey): unknown {
  if (isMap(node)) return node.items.find(pair => keyText(pair.key) === key)?.value
  return isCollection(node) && typeof key === 'number' ? node.items[key] : undefined
}

function keyNodeOf(node: unknown, key: PropertyKey | undefined): unknown {
  return isMap(node) ? node.items.find(pair => keyText(pair.key) === key)?.key : undefined
}

function keyText(key: unknown): string {
  return isScalar(key) ? String(key.value) : ''
}

function finding(node: unknown, message: string): Finding {
  return { message, offset: offsetOf(node) ?? 0 }
}

function offsetOf(node: unknown): number | undefined {
  return isScalar(node) || isCollection(node) || isAlias(node) ? node.range?.[0] : undefined
}
