import { isAlias, isCollection, isMap, isPair, isScalar, type LineCounter, type Node } from 'yaml'
import { OPERATOR_YAML_LIMITS, type YamlLimits } from '../limits.ts'
import { type ComposedYaml, composeYaml } from './compose-yaml.ts'
import { keyText, pairAt } from './map-pairs.ts'
import { MAX_REPORTED_PROBLEMS, problemAt, type SourcePosition, type SourceProblem } from './source-problem.ts'
import { firstSyntaxMistake } from './syntax-mistake.ts'
import { unreadableCharacter } from './unreadable-character.ts'
import { yamlComplaintSentence } from './yaml-complaint-sentence.ts'

const STRICT_YAML = {
  version: '1.2',
  schema: 'core',
  merge: false,
  resolveKnownTags: false,
  stringKeys: true,
  uniqueKeys: false,
} as const

/** Keys and indexes from the root of a document to one of its values. */
export type YamlPath = readonly PropertyKey[]

/** A YAML text with its value and the positions of everything in it. */
export interface YamlSource {
  /** The problems of the text itself, in the order of the text. */
  readonly problems: readonly SourceProblem[]
  /** Undefined if the parser refuses the text, or if the text contains an alias. */
  readonly value: unknown
  /** Returns the start of the value at `path`; if there is none, the start of its closest ancestor. */
  positionOf(path: YamlPath): SourcePosition
  /** Returns the start of the last key of `path`; if there is none, the same position as `positionOf`. */
  positionOfKey(path: YamlPath): SourcePosition
}

/**
 * Parses one YAML 1.2 document (core schema) strictly, and pauses at each `yield`. Reports as problems: anchors,
 * aliases, tags outside the core schema, directives, more than one document, unreadable characters, any excess over
 * `limits` or `MAX_YAML_LEVELS`, and keys that are repeated, `__proto__` or not text. Reports only the first
 * `MAX_REPORTED_PROBLEMS`, and only the first mistake of a text that is not valid YAML. Never throws because of the
 * text.
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
  return new ParsedSource(composed, file, mistake)
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

  constructor(composed: ComposedYaml, file: string, mistake: Finding | undefined) {
    this.#file = file
    this.#lines = composed.lines
    this.#root = composed.document?.contents ?? null
    const walked = walkNodes(this.#root)
    this.problems = (mistake === undefined ? [...syntaxFindings(composed), ...walked.findings] : [mistake])
      .toSorted((a, b) => a.offset - b.offset)
      .slice(0, MAX_REPORTED_PROBLEMS)
      .map(({ message, offset }) => problemAt(this.#positionAt(offset), message))
    this.value = isSound(composed) && !walked.hasAlias ? composed.document?.toJS({ maxAliasCount: 0 }) : undefined
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

function isSound({ complaints }: ComposedYaml): boolean {
  return complaints.every(({ isWarning }) => isWarning)
}

function syntaxFindings({ document, complaints }: ComposedYaml): Finding[] {
  const versionDirective = document?.directives.yaml.explicit
    ? [{ message: 'directives (%) are not accepted: remove them', offset: 0 }]
    : []
  const reported = complaints.map(complaint => ({
    message: yamlComplaintSentence(complaint),
    offset: complaint.offset,
  }))
  return [...versionDirective, ...reported]
}

interface Walked {
  readonly findings: readonly Finding[]
  readonly hasAlias: boolean
}

function walkNodes(root: Node | null): Walked {
  const findings: Finding[] = []
  const open: unknown[] = [root]
  let hasAlias = false
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    findings.push(...nodeFindings(node))
    hasAlias ||= isAlias(node)
    open.push(...childNodes(node).filter(child => child !== undefined))
  }
  return { findings, hasAlias }
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
    if (repeated) return [finding(key, 'this key is already in the same map: remove or rename one of the two')]
    return name === '__proto__' ? [finding(key, 'the key "__proto__" is not accepted')] : []
  })
}

function childNodes(node: unknown): unknown[] {
  if (!isCollection(node)) return []
  return node.items.flatMap(item => (isPair(item) ? [item.key, item.value] : [item]))
}

function childOf(node: unknown, key: PropertyKey): unknown {
  if (isMap(node)) return pairAt(node, key)?.value
  return isCollection(node) && typeof key === 'number' ? node.items[key] : undefined
}

function keyNodeOf(node: unknown, key: PropertyKey | undefined): unknown {
  return isMap(node) ? pairAt(node, key)?.key : undefined
}

function finding(node: unknown, message: string): Finding {
  return { message, offset: offsetOf(node) ?? 0 }
}

function offsetOf(node: unknown): number | undefined {
  return isScalar(node) || isCollection(node) || isAlias(node) ? node.range?.[0] : undefined
}
