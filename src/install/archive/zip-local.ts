import { isAscii } from 'node:buffer'
import { invalidArchive, invalidEntry } from '../../core/archive/planned-tree.ts'
import { countInWords } from '../../core/text.ts'
import { type ReadWindow, WINDOW_BYTES } from './pieces.ts'
import {
  isUtf8Name,
  type LocatedZipEntry,
  MOST_HEADER_BYTES,
  type OpenZip,
  parseMethod,
  SATURATED_32,
  verifyFlags,
  type ZipDirectory,
  type ZipEntry,
  ZipExtraFields,
} from './zip-listing.ts'

interface LocalHeader {
  readonly fixed: Buffer
  readonly flags: number
  readonly rawName: Buffer
  readonly fields: ZipExtraFields
  readonly bytes: number
}

const HEADER_SIGNATURE = 0x04034b50
const HEADER_BYTES = 30
const HAS_DATA_DESCRIPTOR = 0x0008
/**
 * Enough for a header and, among small files, the next few. Another read costs more than reading the bytes between
 * headers.
 */
const READ_AHEAD_BYTES = 64 * 1024

/** The part of a ZIP, from its beginning, that the entries examined so far take up. */
interface TakenUp {
  /** The position after the last entry's packed bytes. */
  readonly end: number
  /** Null before the first entry. */
  readonly last: ZipEntry | null
  readonly hasDescriptor: boolean
}

/**
 * Locates the data of each entry of the directory; returns the entries by their numbers. Verifies that the local header
 * of each entry has the name, name encoding, method, CRC and sizes that the directory gives. If a data descriptor
 * follows, the header may leave the CRC and the sizes open. Verifies that every byte before the directory belongs to
 * exactly one entry. A reader that goes from one local header to the next sees the same entries: deflated data shows
 * its own end, and stored data of open size ends at the first signature of a data descriptor. Throws ArchiveError
 * `invalid_archive` or `unsafe_archive` if a header or byte breaks these rules, and the signal's reason once the
 * slice's signal is aborted.
 */
export async function locateEntries(
  { window, slice }: OpenZip,
  directory: ZipDirectory,
): Promise<readonly LocatedZipEntry[]> {
  const endless: LocatedZipEntry[] = []
  let taken: TakenUp = { end: 0, last: null, hasDescriptor: false }
  const inDataOrder = directory.entries.toSorted((a, b) => a.headerOffset - b.headerOffset)
  await slice.forEach(inDataOrder, entry => {
    if (entry.headerOffset < taken.end) throw invalidEntry(entry.name, 'overlaps another entry')
    verifyGap(window, taken, entry.headerOffset)
    const header = readHeader(window, entry)
    verifyLocalHeader(header, entry)
    const dataOffset = entry.headerOffset + header.bytes
    taken = { end: dataOffset + entry.packedSize, last: entry, hasDescriptor: hasDescriptor(header) }
    if (taken.end > directory.offset) throw invalidEntry(entry.name, 'reaches into the directory')
    entry.dataOffset = dataOffset
    if (isEndless(header, entry)) endless.push(entry)
  })
  verifyGap(window, taken, directory.offset)
  for (const entry of endless) await slice.run(verifyFirstSignature(window, entry))
  return directory.entries
}

/**
 * Verifies that nothing lies between the last entry and position `next`, except the data descriptor if the last entry
 * announces one.
 */
function verifyGap(window: ReadWindow, { end, last, hasDescriptor }: TakenUp, next: number): void {
  const bytes = next - end
  if (last !== null && hasDescriptor) verifyDescriptor(window, { entry: last, at: end, bytes })
  else if (bytes > 0) throw strayBytes(last, bytes)
}

function verifyDescriptor(window: ReadWindow, found: { entry: ZipEntry; at: number; bytes: number }): void {
  const { entry, at, bytes } = found
  if (bytes > MAX_DESCRIPTOR_BYTES) throw strayBytes(entry, bytes)
  if (!isDescriptorOf(window.look(at, bytes, READ_AHEAD_BYTES), entry))
    throw invalidEntry(entry.name, 'announces a data descriptor, but is not followed by a valid one')
}

function strayBytes(last: ZipEntry | null, bytes: number): Error {
  const problem = `${countInWords(bytes, 'byte')} outside all entries, where another reader could find other entries`
  return last === null
    ? invalidArchive(`it begins with ${problem}`)
    : invalidEntry(last.name, `is followed by ${problem}`)
}

function hasDescriptor({ flags }: LocalHeader): boolean {
  return (flags & HAS_DATA_DESCRIPTOR) !== 0
}

function verifyLocalHeader(header: LocalHeader, entry: ZipEntry): void {
  verifyFlags(header.flags, entry.name)
  if (parseMethod(header.fixed.readUInt16LE(8), entry.name) !== entry.method) throw contradiction(entry, 'method')
  if (!hasName(header.rawName, entry.name)) throw contradiction(entry, 'name')
  header.fields.verifyUnicodePath(header.rawName)
  if (!isAscii(header.rawName) && !isUtf8Name(header.flags) && !header.fields.hasUnicodePath)
    throw contradiction(entry, 'encoding of its name')
  verifySizes(header, entry)
}

function readHeader(window: ReadWindow, { name, headerOffset }: ZipEntry): LocalHeader {
  const looked = Math.max(HEADER_BYTES, Math.min(MOST_HEADER_BYTES, window.fileSize - headerOffset))
  const start = window.look(headerOffset, looked, READ_AHEAD_BYTES)
  if (start.readUInt32LE(0) !== HEADER_SIGNATURE)
    throw invalidEntry(name, 'has no local header at the position that the directory lists')
  const extraAt = HEADER_BYTES + start.readUInt16LE(26)
  const bytes = extraAt + start.readUInt16LE(28)
  const fixed = bytes <= start.length ? start : window.look(headerOffset, bytes, READ_AHEAD_BYTES)
  const rawName = fixed.subarray(HEADER_BYTES, extraAt)
  const fields = new ZipExtraFields(fixed, { start: extraAt, end: bytes, rawName })
  return { fixed, flags: fixed.readUInt16LE(6), rawName, fields, bytes }
}

function hasName(rawName: Buffer, name: string): boolean {
  return isAscii(rawName) ? rawName.toString('latin1') === name : rawName.equals(Buffer.from(name))
}

/** True if only the signature of a data descriptor shows a reader of a stream where the data ends. */
function isEndless(header: LocalHeader, { method }: ZipEntry): boolean {
  return method === 'stored' && hasDescriptor(header) && isLeftOpen(localSizes(header).packedSize)
}

/** True for a value that a writer may not have known yet; in that case, the data descriptor contains the true value. */
function isLeftOpen(value: number): boolean {
  return value === 0 || value === SATURATED_32
}

function localSizes(header: LocalHeader): { size: number; packedSize: number } {
  const { fixed, fields } = header
  const sizes = [fixed.readUInt32LE(22), fixed.readUInt32LE(18)]
  const [size = 0, packedSize = 0] = hasDescriptor(header) && !fields.hasZip64 ? sizes : fields.resolveZip64(sizes)
  return { size, packedSize }
}

function verifySizes(header: LocalHeader, entry: ZipEntry): void {
  const agrees = (value: number, expected: number): boolean =>
    value === expected || (hasDescriptor(header) && isLeftOpen(value))
  const { size, packedSize } = localSizes(header)
  if (!agrees(header.fixed.readUInt32LE(14), entry.crc >>> 0)) throw contradiction(entry, 'CRC')
  if (!agrees(size, entry.size) || !agrees(packedSize, entry.packedSize)) throw contradiction(entry, 'size')
}

function contradiction(entry: ZipEntry, field: string): Error {
  return invalidEntry(entry.name, `has a different ${field} in its local header than in the directory`)
}

const SIGNATURE = 0x08074b50
const SIGNATURE_BYTES = 4
const SIGNATURE_TEXT = 'PK\x07\x08'
/** The length of a CRC and two sizes of 32 or 64 bits. The signature before them is optional. */
const SHORT_BYTES = 12
const LONG_BYTES = 20

/** The length of the longest data descriptor: one with a signature and sizes of 64 bits. */
const MAX_DESCRIPTOR_BYTES = SIGNATURE_BYTES + LONG_BYTES

/** True if the bytes are exactly one data descriptor (APPNOTE 4.3.9), with the entry's own CRC and sizes. */
function isDescriptorOf(bytes: Buffer, entry: ZipEntry): boolean {
  const isSigned = bytes.length === SIGNATURE_BYTES + SHORT_BYTES || bytes.length === SIGNATURE_BYTES + LONG_BYTES
  if (isSigned && bytes.readUInt32LE(0) !== SIGNATURE) return false
  const fields = isSigned ? bytes.subarray(SIGNATURE_BYTES) : bytes
  if (fields.length !== SHORT_BYTES && fields.length !== LONG_BYTES) return false
  const [packedSize, size] = fields.length === SHORT_BYTES ? readShortSizes(fields) : readLongSizes(fields)
  return fields.readInt32LE(0) === entry.crc && packedSize === entry.packedSize && size === entry.size
}

function readShortSizes(fields: Buffer): [number, number] {
  return [fields.readUInt32LE(4), fields.readUInt32LE(8)]
}

function readLongSizes(fields: Buffer): [number, number] {
  return [Number(fields.readBigUInt64LE(4)), Number(fields.readBigUInt64LE(12))]
}

/**
 * Verifies that the first descriptor signature after the start of an entry's data is at the end of the data. Pauses
 * after each window. Throws ArchiveError `invalid_archive`.
 */
function* verifyFirstSignature(
  window: ReadWindow,
  { name, dataOffset, packedSize }: LocatedZipEntry,
): Generator<void, void> {
  const dataEnd = dataOffset + packedSize
  const end = dataEnd + SIGNATURE_BYTES
  for (let at = dataOffset; at + SIGNATURE_BYTES <= end; at += WINDOW_BYTES - SIGNATURE_BYTES + 1) {
    const found = window.look(at, Math.min(WINDOW_BYTES, end - at)).indexOf(SIGNATURE_TEXT, 0, 'latin1')
    if (found !== -1 && at + found === dataEnd) return
    if (found !== -1)
      throw invalidEntry(name, "contains a data descriptor's signature, at which another reader could end the entry")
    yield
  }
  throw invalidEntry(name, "is stored, but neither a size nor a data descriptor's signature shows where it ends")
}
