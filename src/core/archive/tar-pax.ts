import { cleanForeignText } from '../foreign-text.ts'
import { invalidArchive } from './archive-entry.ts'
import { decodeEntryName } from './entry-names.ts'

/** The fields of a PAX extended header that matter to the extraction of the next member. */
export interface PaxFields {
  readonly path?: string
  /** Not decoded yet. */
  readonly linkpath?: Buffer
  /** Bytes. */
  readonly size?: number
  /** A key that makes the member different from what its header says, such as the key of a sparse file. */
  readonly specialKey?: string
}

const SPACE = 0x20
const ZERO = 0x30
const NINE = 0x39
const EQUALS = 0x3d
const LINE_FEED = 0x0a
/** Without a limit, the search for the lengths of records could take time quadratic in the number of bytes. */
const MAX_LENGTH_DIGITS = 8
const DECIMAL = /^(0|[1-9][0-9]{0,14})$/
/** Longer than any key that matters. */
const MAX_KEY_BYTES = 64
const KEY_STARTS: ReadonlySet<number> = new Set(Buffer.from('plsGS'))
const NAMING_KEYS: ReadonlySet<string> = new Set(['path', 'linkpath', 'size'])
const SPECIAL_KEY = /^(GNU\.|SUN\.|SCHILY\.(realsize|filetype)$)/

/**
 * Parses the fields of a PAX extended header about one member. Omits keys that change neither name nor content, such as
 * times and attributes. Throws ArchiveError `invalid_archive` for malformed records, a repeated key that matters, an
 * empty path or linkpath, and a size that is not a number. Throws `unsafe_archive` for a path that is not UTF-8.
 */
export function parsePaxFields(body: Buffer): PaxFields {
  const records = parseRecords(body)
  const [path, linkpath, size] = [records.get('path'), records.get('linkpath'), records.get('size')]
  const specialKey = [...records.keys()].find(key => SPECIAL_KEY.test(key))
  return {
    ...(path && { path: decodeEntryName(requireText(path), 'utf-8') }),
    ...(linkpath && { linkpath: Buffer.from(requireText(linkpath)) }),
    ...(size && { size: parseSize(size) }),
    ...(specialKey !== undefined && { specialKey }),
  }
}

/**
 * Refuses a PAX global header that sets names, targets, sizes or special keys, because they would apply to every member
 * that follows. (`git archive` writes a comment, and other tools write times and owners.) Throws ArchiveError
 * `invalid_archive` for such a header and for malformed records.
 */
export function verifyGlobalPax(body: Buffer): void {
  const [key] = parseRecords(body).keys()
  if (key === undefined) return
  throw invalidArchive(`a PAX global header sets ${cleanForeignText(key)} for every member that follows`)
}

/**
 * Returns the records that change what a member is. Each has the form `<length> <key>=<value>\n`; the length counts
 * the whole record. Reads byte by byte, because a header may consist of thousands of records.
 */
function parseRecords(body: Buffer): Map<string, Buffer> {
  const records = new Map<string, Buffer>()
  for (let at = 0; at < body.length; ) {
    const keyAt = endOfDigits(body, at) + 1
    const end = at + parseDecimal(body.toString('latin1', at, keyAt - 1))
    const equals = indexOfEquals(body, keyAt, end)
    if (body[keyAt - 1] !== SPACE || equals === keyAt || body[end - 1] !== LINE_FEED) throw malformed('record')
    const key = decisiveKey(body, keyAt, equals)
    if (key !== undefined && records.has(key)) throw invalidArchive('a PAX header repeats a key')
    if (key !== undefined) records.set(key, body.subarray(equals + 1, end - 1))
    at = end
  }
  return records
}

function endOfDigits(body: Buffer, start: number): number {
  let at = start
  while (at < start + MAX_LENGTH_DIGITS && isDigit(body[at])) at++
  return at
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE
}

/** Finds the sign between a key and its value. */
function indexOfEquals(body: Buffer, start: number, end: number): number {
  if (end > body.length) throw malformed('record')
  let at = start
  while (at < end && body[at] !== EQUALS) at++
  if (at >= end) throw malformed('record')
  return at
}

/** Returns a key that matters, or undefined. Decoding every other key would cost more than reading it. */
function decisiveKey(body: Buffer, start: number, end: number): string | undefined {
  if (end - start > MAX_KEY_BYTES || !KEY_STARTS.has(body[start] ?? 0)) return undefined
  const key = body.toString('latin1', start, end)
  return NAMING_KEYS.has(key) || SPECIAL_KEY.test(key) ? key : undefined
}

function requireText(value: Buffer): Buffer {
  if (value.length === 0) throw invalidArchive('a PAX header has an empty path or linkpath')
  return value
}

function parseSize(value: Buffer): number {
  return parseDecimal(value.toString('latin1'))
}

function parseDecimal(digits: string): number {
  if (!DECIMAL.test(digits)) throw malformed('number')
  return Number(digits)
}

function malformed(field: string): Error {
  return invalidArchive(`a PAX header has a malformed ${field}`)
}
