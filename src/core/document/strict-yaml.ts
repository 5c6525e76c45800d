import { type Document, isScalar, type Scalar, visit } from 'yaml'
import { cleanForeignText } from '../foreign-text.ts'
import type { YamlLimits } from '../limits.ts'
import { runToEnd } from '../pausing-work.ts'
import { type ComposedYaml, composeYaml } from './compose-yaml.ts'
import { ambiguousCharacter, unreadableCharacter } from './unreadable-character.ts'

/** Enough for the honest use of anchors, too few for a bomb. */
const MAX_ALIAS_COUNT = 100

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
 * Reads a foreign YAML text that another program also reads, perhaps as YAML 1.1. Both programs find the same maps
 * and lists, but YAML 1.1 reads more words as true or false and more forms as numbers. Throws StrictYamlProblem if the
 * text is not one valid document, exceeds the limits, or has a structure that could be read differently.
 */
export function readStrictYaml(text: string, limits: YamlLimits): StrictYaml {
  refuseAmbiguousText(text, limits)
  const document = readDocument(runToEnd(composeYaml(text.replace(/^\uFEFF/, ''), limits, { uniqueKeys: false })))
  refuseAmbiguousNodes(document)
  return { document, value: toPlainValue(() => document.toJS({ maxAliasCount: MAX_ALIAS_COUNT })) }
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
