import { createHash } from 'node:crypto'

/** A journal that is not as this action wrote it; the message says what was found. */
export class JournalDamage extends Error {
  override readonly name = 'JournalDamage'
}

/** The contents of a journal, as its lines and checksums show them. */
export interface JournalText {
  /** The parsed records, oldest first. The number of a record is its position, counting from 1. */
  readonly records: readonly unknown[]
  /** The size of the complete records, in bytes. A torn record, if any, and padding follow them. */
  readonly length: number
  /**
   * The complete records after a torn one. None of them was durable when the power failed, unless the torn record was
   * damaged later.
   */
  readonly behind: readonly unknown[]
}

/** Fills up the journal, so that the room for each record is already allocated. */
export const PADDING = ' '

/** The unit that a disk writes whole or not at all. */
const SECTOR_BYTES = 512

/** Returns one line of the journal: a record with its number, and a checksum of both. */
export function formatLine(seq: number, record: object): string {
  const body = JSON.stringify(record)
  return `{"seq":${seq},"sum":"${checksum(seq, body)}",${body.slice(1)}\n`
}

/**
 * Reads the lines of a journal. A power cut may have torn the records that were being written. The journal then ends
 * with a proper prefix of the next record, followed by padding, or contains records with whole sectors of padding. None
 * of these records was durable yet, so the first torn record ends the journal.
 *
 * Throws JournalDamage for anything else, including a journal that was cut off and so has lost its padding.
 */
export function parseJournalText(bytes: Buffer): JournalText {
  const records: unknown[] = []
  let length = 0
  for (let end = bytes.indexOf('\n'); end !== -1; end = bytes.indexOf('\n', length)) {
    const line = parseLineUnlessTorn(bytes, { seq: records.length + 1, start: length, end })
    if (line === undefined) break
    records.push(line.record)
    length = end + 1
  }
  if (length === 0) throw new JournalDamage('it contains no complete record')
  const tail = bytes.subarray(length)
  if (tail.includes(0) || !hasUnwrittenSector(bytes, { start: length, end: startOfPadding(bytes) }))
    verifyTail(records.length + 1, tail.toString('utf8'))
  return { records, length, behind: findWholeRecords(tail) }
}

function findWholeRecords(tail: Buffer): unknown[] {
  const lines = tail.toString('latin1').split('\n').slice(0, -1)
  return lines.flatMap(line => {
    const seq = Number(/^\{"seq":(\d{1,9}),/.exec(line)?.[1])
    // A hostile file may have millions of lines, and each error costs more than a look.
    if (Number.isNaN(seq)) return []
    const text = Buffer.from(line, 'latin1').toString('utf8')
    try {
      return [parseLine(seq, text)]
    } catch {
      return []
    }
  })
}

/** Returns the position where the padding at the end of the bytes begins. */
export function startOfPadding(bytes: Buffer): number {
  const padding = Buffer.alloc(bytes.length, PADDING)
  let [low, high] = [0, bytes.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (bytes.subarray(middle).equals(padding.subarray(middle))) high = middle
    else low = middle + 1
  }
  return low
}

/** The bytes from `start` up to, but not including, `end`. */
interface Span {
  readonly start: number
  readonly end: number
}

/**
 * Returns undefined for a torn line. A torn first record counts as damage, because a journal is durable before it gets
 * its final name.
 */
function parseLineUnlessTorn(bytes: Buffer, line: Span & { readonly seq: number }): { record: unknown } | undefined {
  try {
    return { record: parseLine(line.seq, decode(bytes.subarray(line.start, line.end))) }
  } catch (error) {
    if (line.seq > 1 && hasUnwrittenSector(bytes, line)) return undefined
    throw error
  }
}

/** True if a whole sector of the span, or the span's part of the first sector, consists of padding. */
function hasUnwrittenSector(bytes: Buffer, { start, end }: Span): boolean {
  const padding = Buffer.alloc(SECTOR_BYTES, PADDING)
  for (let at = start, next = 0; at < end; at = next) {
    next = at - (at % SECTOR_BYTES) + SECTOR_BYTES
    if (next <= end && bytes.subarray(at, next).equals(padding.subarray(0, next - at))) return true
  }
  return false
}

function parseLine(seq: number, line: string): unknown {
  const found = /^\{"seq":(\d+),"sum":"([0-9a-f]{16})",(.+\})$/.exec(line)
  if (found === null) throw new JournalDamage(`its line ${seq} does not have the form of a record`)
  const [, number, sum, rest] = found
  const body = `{${rest}`
  if (Number(number) !== seq) throw new JournalDamage(`its line ${seq} has the record number ${number}`)
  if (sum !== checksum(seq, body)) throw new JournalDamage(`its line ${seq} does not match its checksum`)
  return JSON.parse(body)
}

function verifyTail(seq: number, tail: string): void {
  if (!tail.endsWith(PADDING)) throw new JournalDamage(`it does not end with padding after record ${seq - 1}`)
  const torn = tail.trim()
  if (torn !== '' && !isPrefixOfRecord(seq, torn))
    throw new JournalDamage(`the text after record ${seq - 1} is not the beginning of another record`)
}

function isPrefixOfRecord(seq: number, text: string): boolean {
  const head = `{"seq":${seq},"sum":"`
  return text.length <= head.length ? head.startsWith(text) : text.startsWith(head) && isJsonPrefix(text)
}

/** True if the text is a JSON object, or could be the beginning of one, and has no control characters. */
function isJsonPrefix(text: string): boolean {
  let depth = 0
  let isInString = false
  for (let index = 0; index < text.length; index++) {
    const char = text.charAt(index)
    if (char < ' ') return false
    if (isInString && char === '\\') index++
    else if (char === '"') isInString = !isInString
    else if (!isInString && '{['.includes(char)) depth++
    else if (!isInString && '}]'.includes(char) && --depth === 0) return index === text.length - 1
  }
  return true
}

function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (error) {
    throw new JournalDamage('it is not UTF-8 text', { cause: error })
  }
}

function checksum(seq: number, body: string): string {
  return createHash('sha256').update(`${seq} ${body}`).digest('hex').slice(0, 16)
}
