const MAX_FOREIGN_TEXT_CHARS = 500

/** Marks a cut in a text, so that a redactor knows where a secret may have been cut in two. */
export const CUT_MARK = '… (cut)'

// biome-ignore lint/suspicious/noControlCharactersInRegex: it exists to find control characters
const ANSI_SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g
const CONTROL_OR_FORMAT = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu
// The runner compares by the rules of a language, which ignore some characters outside ASCII.
const WORKFLOW_COMMAND = /^[^!-~]*:(?=[^ -~\u00b7]*:)|#(?=[^ -~\u00b7]*#[^ -~\u00b7]*\[)/g

/**
 * Makes text from a hub, a child process or an archive safe to show on one line. Removes ANSI sequences, and replaces
 * each run of control, direction or zero-width characters with a space. Cuts the text after `maxChars` characters, and
 * marks the cut. Text for a log also needs `cleanLogLine`.
 */
export function cleanForeignText(text: string, maxChars: number = MAX_FOREIGN_TEXT_CHARS): string {
  const flat = text
    .slice(0, maxChars * 4)
    .replace(ANSI_SEQUENCE, '')
    .replace(CONTROL_OR_FORMAT, ' ')
    .trim()
  const characters = [...flat]
  const isCut = characters.length > maxChars || text.length > maxChars * 4
  return isCut ? `${characters.slice(0, maxChars).join('')}${CUT_MARK}` : flat
}

/**
 * Like `cleanForeignText`, for a line of a workflow log: also breaks up what the runner would run as a command, which
 * is `::` at the start of a line, and `##[` anywhere.
 */
export function cleanLogLine(text: string, maxChars: number): string {
  return cleanForeignText(text, maxChars).replace(WORKFLOW_COMMAND, '$&\u00b7')
}

const MAX_LISTED_NAMES = 20

/** Lists up to 20 cleaned names, separated by commas, and counts the rest, because a publisher may list thousands. */
export function listNames(names: readonly string[]): string {
  return listFirst(
    names.map(name => cleanForeignText(name, 64)),
    MAX_LISTED_NAMES,
  )
}

/**
 * Returns the text as a sentence that another sentence can follow. Adds a period unless the text already ends with `.`,
 * `!` or `?`. A closing quotation mark or parenthesis may follow.
 */
export function asSentence(text: string): string {
  return /[.!?]["')]?$/.test(text) ? text : `${text}.`
}

/** Quotes a word for a shell, if that is necessary. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}

const UNITS = ['kB', 'MB', 'GB'] as const
const [SECOND_MS, MINUTE_MS] = [1000, 60_000]
/** A number of at least this size rounds to 10 or more and is shown without a decimal. */
const PLAIN_FROM = 9.95

/** Formats a number of bytes for people: `919 bytes`, `8.9 MB`. */
export function bytesInWords(bytes: number): string {
  if (bytes < 1000) return bytes === 1 ? '1 byte' : `${bytes} bytes`
  let [size, unit] = [bytes, -1]
  while (size >= 999.5 && unit < UNITS.length - 1) [size, unit] = [size / 1000, unit + 1]
  return `${withPoint(size)} ${UNITS[unit]}`
}

/** Formats a duration for people: `15 ms`, `4.2 s`, `2 min 5 s`. */
export function durationInWords(ms: number): string {
  if (ms < 99.5) return `${Math.round(ms)} ms`
  if (ms < MINUTE_MS - SECOND_MS / 2) return `${withPoint(ms / SECOND_MS)} s`
  const seconds = Math.round(ms / SECOND_MS)
  return `${countInWords(Math.floor(seconds / 60))} min${seconds % 60 === 0 ? '' : ` ${seconds % 60} s`}`
}

/** Formats a count with its noun: `1 file`, `3,012 files`; without a noun, `3,012`. */
export function countInWords(count: number, noun?: string): string {
  const digits = String(count).replace(/\B(?=(?:\d{3})+$)/g, ',')
  return noun === undefined ? digits : `${digits} ${noun}${count === 1 ? '' : 's'}`
}

/** Lists the first items and the number of the others: `a, b and 3 more`. */
export function listFirst(items: readonly string[], max: number, separator = ', '): string {
  const more = items.length - max
  return `${items.slice(0, max).join(separator)}${more > 0 ? ` and ${more} more` : ''}`
}

/** Lists all items: `a, b and c`. */
export function listAll(items: readonly string[]): string {
  const last = items.at(-1) ?? ''
  return items.length < 2 ? last : `${items.slice(0, -1).join(', ')} and ${last}`
}

/** Returns enough of a digest to recognize it. */
export function shortDigest(hex: string): string {
  return hex.length <= 16 ? hex : `${hex.slice(0, 8)}…${hex.slice(-4)}`
}

function withPoint(size: number): string {
  return size < PLAIN_FROM ? size.toFixed(1).replace(/\.0$/, '') : String(Math.round(size))
}

const MAX_CELL_CHARS = 1500

/**
 * Returns text from outside as one line of Markdown that shows just that text, without turning a bare URL into a link.
 */
export function cell(text: string): string {
  return cellOf(text, MAX_CELL_CHARS)
}

/** Like `cell`, but cuts the text at `maxChars`, for tables with many rows. */
export function cellOf(text: string, maxChars: number): string {
  return cleanForeignText(text, maxChars).replace(
    /[\\`*_{}[\]<>|#!~&@$]|:(?=\/\/)|(?<=www)\./gi,
    character => `&#${character.codePointAt(0)};`,
  )
}

/** Like `cellOf`, but formats the text as code. */
export function code(text: string, maxChars: number = MAX_CELL_CHARS): string {
  return `<code>${cellOf(text, maxChars)}</code>`
}

/** Returns a sentence as Markdown: text between backticks becomes code, and everything else is shown literally. */
export function words(text: string): string {
  const plain = (part: string): string => `${/^\s/.test(part) ? ' ' : ''}${cell(part)}${/\s$/.test(part) ? ' ' : ''}`
  return text
    .split('`')
    .map((part, index) => (index % 2 === 0 ? plain(part) : code(part)))
    .join('')
}

/** Builds a table of cells that are already Markdown. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

/** Builds a link if `url` is a plain http or https address; otherwise returns the text alone. */
export function link(text: string, url: string | null): string {
  return url !== null && /^https?:\/\/[\w.:/%+-]{1,500}$/.test(url) ? `[${text}](${url})` : text
}

/** Builds a highlighted block of lines that are already Markdown; several lines become a list. */
export function alert(kind: 'NOTE' | 'WARNING' | 'CAUTION', lines: readonly string[]): string {
  const items = lines.length === 1 ? lines : lines.map(line => `- ${line}`)
  return [`[!${kind}]`, ...items].map(line => `> ${line}`).join('\n')
}

/** Builds a block of Markdown that is closed until a reader opens it. */
export function details(title: string, blocks: readonly string[]): string {
  return [`<details><summary>${title}</summary>`, ...blocks, '</details>'].join('\n\n')
}

/** A list as JSON, and the number of its items that were left out. */
export interface BoundedList {
  readonly json: string
  readonly omitted: number
}

/** Builds a list of the first items, as many as fit into `maxChars` characters of JSON. */
export function fitList(items: readonly unknown[], maxChars: number): BoundedList {
  const texts: string[] = []
  let room = maxChars - '['.length
  for (const item of items) {
    const text = JSON.stringify(item)
    // A comma or the final bracket follows each item.
    room -= text.length + ','.length
    if (room < 0) break
    texts.push(text)
  }
  return { json: `[${texts.join(',')}]`, omitted: items.length - texts.length }
}

/** Shorter secrets are not replaced; nor are shorter beginnings of a secret before a cut. */
export const SHORTEST_REDACTED = 4
const CUT_SIGN = CUT_MARK.charAt(0)

/**
 * Returns a function that replaces every secret, and every line of a secret, in a text with `***`. If the text was cut
 * inside a secret, the function also replaces the beginning of that secret. Files and outputs need this function,
 * because the runner masks only the log. Secrets and lines of fewer than 4 characters stay: replacing them would garble
 * every sentence.
 */
export function createRedactor(secrets: readonly (string | undefined)[]): (text: string) => string {
  const known = secrets
    .flatMap(secret => (secret === undefined ? [] : [secret, secret.trim(), ...secret.split(/\r?\n/)]))
    .filter(secret => secret.length >= SHORTEST_REDACTED)
  const forms = [...new Set(known.flatMap(formsOf))].sort((a, b) => b.length - a.length)
  const withSign = forms.filter(form => form.includes(CUT_SIGN))
  return text => redactWhole(redactCut(redactWhole(text, withSign), forms), forms)
}

/**
 * Returns the forms that a secret may have in a text: unchanged, in JSON, in a URL, in Markdown, and cleaned as foreign
 * text.
 */
function formsOf(secret: string): string[] {
  const printed = [secret, cleanForeignText(secret, Number.POSITIVE_INFINITY), cellOf(secret, Number.POSITIVE_INFINITY)]
  const forms = [...printed, ...printed.map(form => JSON.stringify(form).slice(1, -1)), encodeURIComponent(secret)]
  return forms.filter(form => form.length >= SHORTEST_REDACTED)
}

function redactWhole(text: string, forms: readonly string[]): string {
  return forms.reduce((redacted, form) => redacted.replaceAll(form, '***'), text)
}

function redactCut(text: string, forms: readonly string[]): string {
  const pieces = text.split(CUT_SIGN)
  const last = pieces.length - 1
  return pieces.map((piece, index) => (index < last ? redactEnd(piece, forms) : piece)).join(CUT_SIGN)
}

/** Replaces the longest end of the text that is also the beginning of a secret. */
function redactEnd(text: string, forms: readonly string[]): string {
  const length = Math.max(0, ...forms.map(form => commonLength(text, form)))
  return length === 0 ? text : `${text.slice(0, -length)}***`
}

/** Returns how many characters at the end of the text are also the beginning of the secret; 0 if fewer than 4. */
function commonLength(text: string, secret: string): number {
  for (let length = Math.min(text.length, secret.length); length >= SHORTEST_REDACTED; length--) {
    if (text.endsWith(secret.slice(0, length))) return length
  }
  return 0
}
