import { type Document, isAlias, isCollection, isScalar, type Scalar, visit } from 'yaml'
import type { YamlLimits } from '../identifiers.ts'
import { runToEnd } from '../log.ts'
import { cleanForeignText } from '../text.ts'
import { ambiguousCharacter, type ComposedYaml, composeYaml, MAX_ALIAS_COUNT, unreadableCharacter } from './source.ts'

/** Numbers, in any notation of YAML 1.1, of YAML 1.2 or of a reader such as PyYAML. */
const NUMBER =
  /^[-+]?(?:0b[01_]+|0x[\da-f_]+|0o[0-7_]+|\d[\d_]*(?::[0-5]?\d)*(?:\.[\d_]*)?(?:e[-+]?\d+)?|\.[\d_]+(?:e[-+]?\d+)?|\.inf|\.nan)$/i
/** Words that stand for a truth value, for nothing or for something else in at least one version of YAML. */
const WORD = /^(?:~|null|y|yes|n|no|true|false|on|off|=|<<|)$/i
const DATE = /^\d{4}-(?:\d\d-\d\d$|\d\d?-\d\d?(?:t|\s+)\d\d?:\d\d:\d\d)/i
const TEXT_TAG = 'tag:yaml.org,2002:str'

/** The reason a foreign text is refused. The message continues a sentence that begins with the file's name. */
export class StrictYamlProblem extends Error {
  /** Whether the text could be read in more than one way, or costs too much. Otherwise, the text is not valid. */
  readonly isAmbiguous: boolean

  constructor(message: string, { isAmbiguous }: { readonly isAmbiguous: boolean }) {
    super(message)
    this.isAmbiguous = isAmbiguous
  }
}

/** A document with its plain value. */
export interface StrictYaml {
  readonly document: Document.Parsed
  readonly value: unknown
}

/**
 * Reads a foreign YAML text that another program also reads, perhaps as YAML 1.1. Both programs find the same maps and
 * lists, but YAML 1.1 reads more words as true or false and more forms as numbers: see `isTextForAll`. Throws
 * StrictYamlProblem if the text is not one valid document, exceeds the limits, or has a structure that could be read
 * differently.
 */
export function readStrictYaml(text: string, limits: YamlLimits): StrictYaml {
  refuseAmbiguousText(text, limits)
  const document = readDocument(runToEnd(composeYaml(text.replace(/^\uFEFF/, ''), limits, { uniqueKeys: false })))
  refuseAmbiguousNodes(document)
  return { document, value: toPlainValue(() => document.toJS({ maxAliasCount: MAX_ALIAS_COUNT })) }
}

/** Returns the node at `path`, or what it is an alias of; null for a key without a value, undefined without a key. */
export function nodeAt(document: Document.Parsed, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((at, key) => {
    if (!isCollection(at) || !at.has(key)) return undefined
    const node = at.get(key, true) ?? null
    return isAlias(node) ? node.resolve(document) : node
  }, document.contents)
}

/** True for a scalar that every reader takes for the same text: it is in quotes, or looks like nothing but text. */
export function isTextForAll(node: unknown): node is Scalar<string> {
  if (!isScalar(node) || typeof node.value !== 'string') return false
  if (node.tag !== undefined) return node.tag === TEXT_TAG
  return node.type !== 'PLAIN' || ![NUMBER, WORD, DATE].some(form => form.test(node.value as string))
}

/** What PyYAML reads as nothing, as false or as the number zero, in a plain scalar. */
const FALSE_IN_PYTHON =
  /^(?:~?|null|Null|NULL|false|False|FALSE|no|No|NO|off|Off|OFF|[-+]?0(?:[bx][0_]+|[0_]*(?:(?::0?0)*\.[0_]*(?:[eE][-+]\d+)?)?)|\.0[0_]*(?:[eE][-+]\d+)?)$/

/** True if Python finds a value true that PyYAML has read: text even if it says "false", unless it is empty. */
export function isTrueInPython(node: unknown): boolean {
  if (isCollection(node)) return node.items.length > 0
  if (!isScalar(node)) return false
  if (node.type === 'PLAIN' && node.tag === undefined) return !FALSE_IN_PYTHON.test(node.source ?? '')
  return Boolean(node.value)
}

function refuseAmbiguousText(text: string, { bytes }: YamlLimits): void {
  if (Buffer.byteLength(text) > bytes) throw ambiguous(`must be at most ${bytes} bytes, but found more`)
  const stranger = unreadableCharacter(text) ?? ambiguousCharacter(text)
  if (stranger !== undefined)
    throw ambiguous(
      `must not contain characters that YAML parsers refuse or interpret differently, but found ${stranger}`,
    )
}

function readDocument({ document, complaints }: ComposedYaml): Document.Parsed {
  const excess = complaints.find(({ code }) => code === 'RESOURCE_EXHAUSTION')
  if (excess !== undefined) throw ambiguous(`has ${excess.message}`)
  const mistake = complaints.find(({ isWarning }) => !isWarning)
  if (mistake !== undefined || document === undefined)
    throw malformed(`is not one valid YAML document (${cleanForeignText(mistake?.message ?? 'no document')})`)
  return document
}

/**
 * Refuses repeated keys, merge keys and keys that are not scalars, because their meaning depends on the parser. Also
 * refuses more aliases than `MAX_ALIAS_COUNT`.
 */
function refuseAmbiguousNodes(document: Document.Parsed): void {
  let aliases = 0
  visit(document, {
    Alias: () => {
      aliases++
      if (aliases > MAX_ALIAS_COUNT) throw ambiguous(`has more than ${MAX_ALIAS_COUNT} aliases`)
    },
    Map: (_, { items }) => refuseAmbiguousKeys(items.map(({ key }) => key)),
  })
}

function refuseAmbiguousKeys(keys: readonly unknown[]): void {
  const seen = new Set<string>()
  for (const key of keys) {
    if (!isScalar(key)) throw ambiguous('must have plain keys, but found a list, a map or an alias as a key')
    if (isMergeKey(key)) throw ambiguous('must write out the keys of its maps, but found a merge key (<<)')
    const name = String(key.value)
    if (seen.has(name))
      throw ambiguous(`must have each key of a map only once, but found "${cleanForeignText(name, 60)}" twice`)
    seen.add(name)
  }
}

function isMergeKey({ value, type, tag }: Scalar): boolean {
  return typeof value === 'symbol' || (value === '<<' && type === 'PLAIN') || tag === 'tag:yaml.org,2002:merge'
}

function toPlainValue(read: () => unknown): unknown {
  try {
    return read()
  } catch (error) {
    const reason = cleanForeignText(error instanceof Error ? error.message : String(error))
    throw reason.startsWith('Excessive alias count')
      ? ambiguous('has aliases of aliases that multiply its content')
      : malformed(`cannot be read (${reason})`)
  }
}

function ambiguous(message: string): StrictYamlProblem {
  return new StrictYamlProblem(message, { isAmbiguous: true })
}

function malformed(message: string): StrictYamlProblem {
  return new StrictYamlProblem(message, { isAmbiguous: false })
}
