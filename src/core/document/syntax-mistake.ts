import type { YamlComplaint } from './compose-yaml.ts'
import { yamlComplaintSentence } from './yaml-complaint-sentence.ts'

/** A mistake in a text, and its position. */
export interface SyntaxMistake {
  readonly message: string
  readonly offset: number
}

/**
 * Returns only the first mistake. The library misreads the text after that mistake, so its other complaints mislead.
 */
export function firstSyntaxMistake(complaints: readonly YamlComplaint[], text: string): SyntaxMistake | undefined {
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
