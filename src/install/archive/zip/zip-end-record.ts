import { invalidArchive } from '../../../core/archive/archive-entry.ts'
import { ArchiveError } from '../../../core/errors.ts'
import type { ReadWindow } from '../read-window.ts'

/** The position and size of a ZIP's central directory, and the number of headers that the end record promises. */
export interface DirectoryLocation {
  readonly offset: number
  readonly size: number
  readonly count: number
}

interface EndRecord extends DirectoryLocation {
  readonly position: number
}

const END_SIGNATURE = Buffer.from('PK\x05\x06', 'latin1')
const END_BYTES = 22
const MAX_COMMENT_BYTES = 0xffff

const LOCATOR_SIGNATURE = 0x07064b50
const LOCATOR_BYTES = 20
const ZIP64_END_SIGNATURE = 0x06064b50
const ZIP64_END_BYTES = 56
/** The bytes that a zip64 record's own size field does not count. */
const ZIP64_END_UNCOUNTED_BYTES = 12

const SATURATED_16 = 0xffff
const SATURATED_32 = 0xffffffff

/**
 * Finds the only central directory of a ZIP. Requires exactly one end record whose comment ends with the file. That
 * comment must not contain the signature of another end record. Requires one disk, and the directory immediately before
 * its end record. Accepts zip64 only if a field asks for it, and without an extensible sector. Throws ArchiveError
 * `invalid_archive` for anything in which another reader might find another directory, and `empty_artifact` for an
 * empty directory.
 */
export function locateDirectory(window: ReadWindow): DirectoryLocation {
  const end = readEndRecord(window)
  const zip64 = readZip64Record(window, end)
  const directory = zip64 ?? end
  if (directory.offset + directory.size !== directory.position) {
    throw invalidArchive('its directory does not end where its end record starts')
  }
  if (directory.count === 0 && directory.size === 0) {
    throw new ArchiveError(
      'empty_artifact',
      'The archive is empty, so it was refused: the publisher must publish a version with its files.',
    )
  }
  return directory
}

function readEndRecord(window: ReadWindow): EndRecord {
  const { fileSize } = window
  const tailBytes = Math.min(fileSize, END_BYTES + MAX_COMMENT_BYTES)
  const tail = window.look(fileSize - tailBytes, tailBytes)
  const [at, another] = endRecordCandidates(tail)
  if (at === undefined)
    throw invalidArchive(
      'it does not end with an end record: it is cut short, continues after its end, or is not a ZIP',
    )
  if (another !== undefined) throw invalidArchive('it has two end records')
  if (tail.includes(END_SIGNATURE, at + 1)) throw invalidArchive('its comment contains another end record')
  return parseEndRecord(tail.subarray(at), fileSize - tailBytes + at)
}

/**
 * Returns the positions of the end records whose comments end with the file. Other signatures of end records may be
 * data: a nested stored ZIP contains one.
 */
function endRecordCandidates(tail: Buffer): number[] {
  const candidates: number[] = []
  for (let at = tail.indexOf(END_SIGNATURE); at !== -1; at = tail.indexOf(END_SIGNATURE, at + 1)) {
    if (at + END_BYTES > tail.length) break
    if (at + END_BYTES + tail.readUInt16LE(at + 20) === tail.length) candidates.push(at)
  }
  return candidates
}

function parseEndRecord(record: Buffer, position: number): EndRecord {
  const count = record.readUInt16LE(10)
  if (record.readUInt16LE(4) !== 0 || record.readUInt16LE(6) !== 0 || record.readUInt16LE(8) !== count)
    throw oneOfSeveral()
  return { position, count, size: record.readUInt32LE(12), offset: record.readUInt32LE(16) }
}

function oneOfSeveral(): ArchiveError {
  return invalidArchive('it is one part of a split archive')
}

function readZip64Record(window: ReadWindow, end: EndRecord): EndRecord | undefined {
  const position = end.position - LOCATOR_BYTES
  if (position < 0) return undefined
  const locator = window.look(position, LOCATOR_BYTES)
  if (locator.readUInt32LE(0) !== LOCATOR_SIGNATURE) return undefined
  if (!isSaturated(end)) throw invalidArchive('it has a zip64 locator that no field of its end record asks for')
  if (locator.readUInt32LE(4) !== 0 || locator.readUInt32LE(16) > 1) throw oneOfSeveral()
  const record = parseZip64Record(window, readSafeInteger(locator, 8), position)
  verifyAgreement(end, record)
  return record
}

function isSaturated(end: EndRecord): boolean {
  return end.count === SATURATED_16 || end.size === SATURATED_32 || end.offset === SATURATED_32
}

function parseZip64Record(window: ReadWindow, position: number, locatorPosition: number): EndRecord {
  const misplaced = invalidArchive(
    'its zip64 locator does not point to an end record that ends where the locator starts',
  )
  if (position + ZIP64_END_BYTES > locatorPosition) throw misplaced
  const record = window.look(position, ZIP64_END_BYTES)
  if (record.readUInt32LE(0) !== ZIP64_END_SIGNATURE) throw misplaced
  if (position + ZIP64_END_UNCOUNTED_BYTES + readSafeInteger(record, 4) !== locatorPosition) throw misplaced
  if (position + ZIP64_END_BYTES !== locatorPosition) {
    throw invalidArchive('its zip64 end record has an extensible sector, which could hide another directory')
  }
  const count = readSafeInteger(record, 32)
  if (record.readUInt32LE(16) !== 0 || record.readUInt32LE(20) !== 0 || readSafeInteger(record, 24) !== count)
    throw oneOfSeveral()
  return { position, count, size: readSafeInteger(record, 40), offset: readSafeInteger(record, 48) }
}

function verifyAgreement(end: EndRecord, zip64: EndRecord): void {
  const agrees =
    (end.count === SATURATED_16 || end.count === zip64.count) &&
    (end.size === SATURATED_32 || end.size === zip64.size) &&
    (end.offset === SATURATED_32 || end.offset === zip64.offset)
  if (!agrees) throw invalidArchive('its two end records contradict each other')
}

function readSafeInteger(bytes: Buffer, at: number): number {
  const value = bytes.readBigUInt64LE(at)
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw invalidArchive('a size or position in it is impossibly large')
  return Number(value)
}
