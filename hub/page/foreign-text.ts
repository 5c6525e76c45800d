import { html, raw } from 'hono/html'
import type { Html } from './time-element.ts'

const MAX_SENTENCE_CHARS = 300
const MAX_VERSION_CHARS = 40
const MAX_UNBROKEN_CHARS = 16
const DIGEST = /[0-9a-f]{32,}/gi
const SHOWN_OF_DIGEST = { first: 8, last: 4 }

/** Makes invisible characters visible, so that they cannot hide or reorder text or make two names look the same. */
export function visibleText(text: string): string {
  return text.replace(
    /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}|^ | $| (?= )/gu,
    found => `‹U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}›`,
  )
}

/** The first sentence of a message, on one line, with shortened digests, and cut after 300 characters. */
export function firstSentence(message: string): string {
  const line = message.replace(/[\s\p{Cc}\p{Zl}\p{Zp}]+/gu, ' ').trim()
  const sentence = /^.+?[.!?](?=\s+[\p{Lu}\p{N}"'“(`]|$)/u.exec(line)?.[0] ?? line
  const shown = withShortDigests(visibleText(sentence))
  return shown.length <= MAX_SENTENCE_CHARS ? shown : `${shown.slice(0, MAX_SENTENCE_CHARS).trimEnd()}…`
}

/** A version or id. A digest or a long text loses its middle; the title has the whole text. */
export function shortened(text: string): Html | string {
  const short = withShortDigests(text)
  const shown = short.length > MAX_VERSION_CHARS ? cut(short, { first: 24, last: 12 }) : short
  if (shown === text) return text
  return html`<abbr title="${text}"${shown.length > MAX_UNBROKEN_CHARS ? '' : raw(' class="digest"')}>${shown}</abbr>`
}

function withShortDigests(text: string): string {
  return text.replace(DIGEST, digest => cut(digest, SHOWN_OF_DIGEST))
}

function cut(text: string, { first, last }: { readonly first: number; readonly last: number }): string {
  return `${text.slice(0, first)}…${text.slice(-last)}`
}
