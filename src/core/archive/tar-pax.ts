import { invalidArchive } from './archive-entry.ts'
import { decodeEntryText } from './entry-names.ts'

/** What a PAX extended header says about the next member, as far as it matters to an extraction. */
export interface PaxFields {
  readonly path?: string
  readonly linkpath?: string
  /** Bytes. */
  readonly size?: number
  /** A key that makes the member something other than its header says, such as a sparse file. */
  readonly specialKey?: string
}

const SPACE = 0x20
const EQUALS = 0x3d
const LINE_FEED = 0x0a
/** Without a bound the search for a record's length costs the square of the bytes. */
const MAX_LENGTH_DIGITS = 8
const DECIMAL = /^(0|[1-9][0-9]{0,14})$/
const SPECIAL_KEY = /^(GNU\.|SCHILY\.(realsize|filetype)$)/

/**
 * The fields of a PAX extended header about one member. Keys that change neither name nor content, like times and
 * attributes, are left out. Throws ArchiveError `invalid_archive` for malformed records, a repeated key, an empty path
 * or linkpath and a size that is not a number, `unsafe_archive` for names that are not UTF-8.
 */
export function parsePaxFields(body: Buffer): PaxFields {
  const records = parseRecords(body)
  const [path, linkpath, size] = [records.get('path'), records.get('linkpath'), records.get('size')]
  const specialKey = [...records.keys()].find(key => SPECIAL_KEY.test(key))
  return {
    ...(path && { path: decodeName(path) }),
    ...(linkpath && { linkpath: decodeName(linkpath) }),
    ...(size && { size: parseSize(size) }),
    ...(specialKey !== undefined && { specialKey }),
  }
}

/**
 * Refuses a PAX global header with more than a comment (`git archive` writes its commit): anything else would apply
 * to every member that follows. Throws ArchiveError `invalid_archive`.
 */
export function verifyGlobalPax(body: Buffer): void {
  for (const key of parseRecords(body).keys()) {
    if (key !== 'comment') throw invalidArchive('a PAX global header contains more than a comment')
  }
}

/** Records of the form `<length> <key>=<value>\n`; the length counts the whole record. */
function parseRecords(body: Buffer): Map<string, Buffer> {
  const records = new Map<string, Buffer>()
  for (let at = 0; at < body.length; ) {
    const space = body.subarray(at, at + MAX_LENGTH_DIGITS + 1).indexOf(SPACE)
    const length = parseDecimal(body.toString('latin1', at, at + Math.max(space, 0)))
    const record = body.subarray(at + space + 1, at + length)
    const equals = record.indexOf(EQUALS)
    if (at + length > body.length || equals < 1 || record.at(-1) !== LINE_FEED) throw malformed('record')
    const key = record.toString('latin1', 0, equals)
    if (records.has(key)) throw invalidArchive('a PAX header repeats a key')
    records.set(key, record.subarray(equals + 1, -1))
    at += length
  }
  return records
}

function decodeName(value: Buffer): string {
  if (value.length === 0) throw invalidArchive('a PAX header has an empty path')
  return decodeEntryText(value, 'utf-8')
}

function parseSize(value: Buffer): number {
  return parseDecimal(value.toString('latin1'))
}

function parseDecimal(digits: string): number {
  if (!DECIMAL.test(digits)) throw malformed('number')
  return Number(digits)
}

function malformed(what: string): Error {
  return invalidArchive(`a PAX header has a malformed ${what}`)
}
