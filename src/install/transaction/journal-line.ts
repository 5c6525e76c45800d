import { createHash } from 'node:crypto'

/** A journal that is not what this action wrote, and what was found. */
export class JournalDamage extends Error {
  override readonly name = 'JournalDamage'
}

/** The bytes of a journal, understood as far as this file goes. */
export interface JournalText {
  /** Each record as JSON, oldest first; the number of each is its position, counted from 1. */
  readonly records: readonly unknown[]
  /** Of the whole records, in bytes. What follows them is a torn record, if any, and padding. */
  readonly length: number
}

/** What the journal is filled up with: room that is already allocated when a record needs it. */
export const PADDING = ' '

/** One line of the journal: a record with its number, and a checksum of both. */
export function formatLine(seq: number, record: object): string {
  const body = JSON.stringify(record)
  return `{"seq":${seq},"sum":"${checksum(seq, body)}",${body.slice(1)}\n`
}

/**
 * Reads the lines of a journal. The last one may be torn: a proper prefix of the next record, followed by padding.
 * Throws JournalDamage for anything else, also for a journal that was cut off and so has lost its padding.
 */
export function parseJournalText(bytes: Buffer): JournalText {
  const length = bytes.lastIndexOf('\n') + 1
  if (length === 0) throw new JournalDamage('it contains no whole record')
  const lines = decode(bytes.subarray(0, length)).split('\n').slice(0, -1)
  const records = lines.map((line, index) => parseLine(index + 1, line.trimStart()))
  verifyTail(records.length + 1, bytes.subarray(length).toString('utf8'))
  return { records, length }
}

function parseLine(seq: number, line: string): unknown {
  const found = /^\{"seq":(\d+),"sum":"([0-9a-f]{16})",(.+\})$/.exec(line)
  if (found === null) throw new JournalDamage(`its line ${seq} is not a record of this version of the action`)
  const [, number, sum, rest] = found
  const body = `{${rest}`
  if (Number(number) !== seq) throw new JournalDamage(`its line ${seq} has the number ${number}`)
  if (sum !== checksum(seq, body)) throw new JournalDamage(`its line ${seq} does not match its checksum`)
  return JSON.parse(body)
}

function verifyTail(seq: number, tail: string): void {
  if (!tail.endsWith(PADDING)) throw new JournalDamage(`it ends after record ${seq - 1}, without the room that follows`)
  const torn = tail.trim()
  if (torn !== '' && !isPrefixOfRecord(seq, torn))
    throw new JournalDamage(`what follows record ${seq - 1} is not the beginning of another`)
}

function isPrefixOfRecord(seq: number, text: string): boolean {
  const head = `{"seq":${seq},"sum":"`
  return text.length <= head.length ? head.startsWith(text) : text.startsWith(head) && isJsonPrefix(text)
}

/** Whether the text can be continued to one JSON object, or is one, without control characters. */
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
    throw new JournalDamage('it is not text', { cause: error })
  }
}

function checksum(seq: number, body: string): string {
  return createHash('sha256').update(`${seq} ${body}`).digest('hex').slice(0, 16)
}
