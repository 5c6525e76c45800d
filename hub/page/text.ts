import { html, raw } from 'hono/html'

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

/** Markup in which every value is escaped. */
export type Html = ReturnType<typeof html>

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS
/** Beyond this age, the date is clearer. */
const MAX_RELATIVE_DAYS = 30
/** The tolerance for a host's clock that is ahead. */
const CLOCK_TOLERANCE_MS = 5 * MINUTE_MS

/** An ISO 8601 time as its age at `now` (milliseconds since 1970) or as a date, with the time in UTC as its title. */
export function timeElement(time: string, now: number): Html {
  const utc = new Date(time).toISOString()
  const full = `${utc.slice(0, 19).replace('T', ' ')} UTC`
  return html`<time datetime="${utc}" title="${full}">${relativeTime(Date.parse(utc), now)}</time>`
}

function relativeTime(time: number, now: number): string {
  const age = now - time
  if (age < -CLOCK_TOLERANCE_MS) return `${dateOf(time)}, by a clock that is ahead`
  if (age < MINUTE_MS) return 'just now'
  if (age < HOUR_MS) return `${Math.floor(age / MINUTE_MS)} min ago`
  if (age < DAY_MS) return `${Math.floor(age / HOUR_MS)} h ago`
  const days = Math.floor(age / DAY_MS)
  if (days > MAX_RELATIVE_DAYS) return dateOf(time)
  return days === 1 ? '1 day ago' : `${days} days ago`
}

function dateOf(time: number): string {
  return new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeZone: 'UTC' }).format(time)
}

/** The outcome of a deployment as a sign and in words, so that nothing depends on color. */
interface ShownOutcome {
  readonly className: 'good' | 'bad' | 'back'
  readonly sign: string
  readonly words: string
}

type ReportedStatus = 'success' | 'failed' | 'rolled_back'

export function shownOutcome(status: ReportedStatus): ShownOutcome {
  switch (status) {
    case 'success':
      return { className: 'good', sign: '✓', words: 'succeeded' }
    case 'failed':
      return { className: 'bad', sign: '✗', words: 'failed' }
    case 'rolled_back':
      return { className: 'back', sign: '↩\u{fe0e}', words: 'was rolled back' }
  }
}
