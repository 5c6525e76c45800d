import { invalidEntry } from '../../core/archive/archive-entry.ts'
import type { TimeSlice } from '../files/time-slice.ts'
import type { ReadWindow } from './read-window.ts'
import { parseMethod, verifyFlags, type ZipDirectory, type ZipEntry } from './zip-directory.ts'
import { parseExtraFields, resolveZip64, verifyUnicodePath } from './zip-extra-fields.ts'

/** An entry whose local header has been compared with the directory. */
export interface LocatedZipEntry extends ZipEntry {
  /** Position of its packed bytes. */
  readonly dataOffset: number
}

const HEADER_SIGNATURE = 0x04034b50
const HEADER_BYTES = 30
const HAS_DATA_DESCRIPTOR = 0x0008
/** Bytes: a header and, among small files, the next few; more calls cost more than the bytes between that nobody looks at. */
const READ_AHEAD_BYTES = 64 * 1024

/**
 * The entries in the order of their data, each with a local header that says the same as the directory: name, method
 * and, without a data descriptor, CRC and sizes. Throws ArchiveError `invalid_archive` when one says something else, or
 * when entries overlap each other or the directory.
 */
export async function locateEntries(
  window: ReadWindow,
  directory: ZipDirectory,
  slice: TimeSlice,
): Promise<LocatedZipEntry[]> {
  const located: LocatedZipEntry[] = []
  let free = 0
  for (const entry of directory.entries.toSorted((a, b) => a.headerOffset - b.headerOffset)) {
    if (entry.headerOffset < free) throw invalidEntry(entry.name, 'overlaps another entry')
    const dataOffset = verifyLocalHeader(window, entry)
    free = dataOffset + entry.packedSize
    if (free > directory.offset) throw invalidEntry(entry.name, 'reaches into the directory')
    located.push({ ...entry, dataOffset })
    if (slice.isOver()) await slice.giveBack()
  }
  return located
}

function verifyLocalHeader(window: ReadWindow, entry: ZipEntry): number {
  const fixed = window.look(entry.headerOffset, HEADER_BYTES, READ_AHEAD_BYTES)
  if (fixed.readUInt32LE(0) !== HEADER_SIGNATURE)
    throw invalidEntry(entry.name, 'has no local header where the directory says')
  const extraAt = HEADER_BYTES + fixed.readUInt16LE(26)
  const bytes = extraAt + fixed.readUInt16LE(28)
  const header = window.look(entry.headerOffset, bytes, READ_AHEAD_BYTES)
  verifyMeaning(header, entry)
  verifyExtraFields(header, extraAt, entry)
  return entry.headerOffset + bytes
}

function verifyMeaning(header: Buffer, entry: ZipEntry): void {
  verifyFlags(header.readUInt16LE(6), entry.name)
  if (parseMethod(header.readUInt16LE(8), entry.name) !== entry.method) throw contradiction(entry, 'method')
}

function verifyExtraFields(header: Buffer, extraAt: number, entry: ZipEntry): void {
  const rawName = header.subarray(HEADER_BYTES, extraAt)
  if (!rawName.equals(Buffer.from(entry.name))) throw contradiction(entry, 'name')
  const fields = parseExtraFields(header.subarray(extraAt), entry.name)
  verifyUnicodePath(fields.unicodePath, rawName, entry.name)
  if ((header.readUInt16LE(6) & HAS_DATA_DESCRIPTOR) === 0) verifySizes(header, fields.zip64, entry)
}

function verifySizes(header: Buffer, zip64: Buffer | undefined, entry: ZipEntry): void {
  const fields = [header.readUInt32LE(22), header.readUInt32LE(18)]
  const [size, packedSize] = resolveZip64(fields, zip64, entry.name)
  if (header.readUInt32LE(14) !== entry.crc) throw contradiction(entry, 'CRC')
  if (size !== entry.size || packedSize !== entry.packedSize) throw contradiction(entry, 'size')
}

function contradiction(entry: ZipEntry, what: string): Error {
  return invalidEntry(entry.name, `has another ${what} in its local header than in the directory`)
}
