import { invalidEntry } from '../../core/archive/archive-entry.ts'
import type { OpenZip } from './open-zip.ts'
import type { ReadWindow } from './read-window.ts'
import { parseMethod, verifyFlags, type ZipDirectory, type ZipEntry } from './zip-directory.ts'
import { ZipExtraFields } from './zip-extra-fields.ts'

/** An entry whose local header has been compared with the directory. */
export interface LocatedZipEntry extends ZipEntry {
  /** Position of its packed bytes. */
  readonly dataOffset: number
}

interface LocalHeader {
  readonly fixed: Buffer
  readonly rawName: Buffer
  readonly fields: ZipExtraFields
  readonly bytes: number
}

const HEADER_SIGNATURE = 0x04034b50
const HEADER_BYTES = 30
const HAS_DATA_DESCRIPTOR = 0x0008
/** Bytes: a header and, among small files, the next few; more calls cost more than to read the bytes between them. */
const READ_AHEAD_BYTES = 64 * 1024

/**
 * The directory's entries in the order of their data, each with a local header that agrees with the directory: name,
 * method and, without a data descriptor, CRC and sizes. Throws ArchiveError `invalid_archive` when one does not
 * agree, or when entries overlap each other or the directory.
 */
export async function locateEntries({ window, slice }: OpenZip, directory: ZipDirectory): Promise<LocatedZipEntry[]> {
  const located: LocatedZipEntry[] = []
  let free = 0
  await slice.forEach(
    directory.entries.toSorted((a, b) => a.headerOffset - b.headerOffset),
    entry => {
      if (entry.headerOffset < free) throw invalidEntry(entry.name, 'overlaps another entry')
      const dataOffset = entry.headerOffset + verifyLocalHeader(window, entry)
      free = dataOffset + entry.packedSize
      if (free > directory.offset) throw invalidEntry(entry.name, 'reaches into the directory')
      // Not copied: copies of a large listing would double the memory that it takes.
      located.push(Object.assign(entry, { dataOffset }))
    },
  )
  return located
}

/** Returns the header's length. */
function verifyLocalHeader(window: ReadWindow, entry: ZipEntry): number {
  const header = readHeader(window, entry)
  verifyFlags(header.fixed.readUInt16LE(6), entry.name)
  if (parseMethod(header.fixed.readUInt16LE(8), entry.name) !== entry.method) throw contradiction(entry, 'method')
  if (!header.rawName.equals(Buffer.from(entry.name))) throw contradiction(entry, 'name')
  header.fields.verifyUnicodePath(header.rawName)
  if ((header.fixed.readUInt16LE(6) & HAS_DATA_DESCRIPTOR) === 0) verifySizes(header, entry)
  return header.bytes
}

function readHeader(window: ReadWindow, { name, headerOffset }: ZipEntry): LocalHeader {
  const start = window.look(headerOffset, HEADER_BYTES, READ_AHEAD_BYTES)
  if (start.readUInt32LE(0) !== HEADER_SIGNATURE)
    throw invalidEntry(name, 'has no local header where the directory says')
  const extraAt = HEADER_BYTES + start.readUInt16LE(26)
  const bytes = extraAt + start.readUInt16LE(28)
  const fixed = window.look(headerOffset, bytes, READ_AHEAD_BYTES)
  const fields = new ZipExtraFields(fixed.subarray(extraAt), name)
  return { fixed, rawName: fixed.subarray(HEADER_BYTES, extraAt), fields, bytes }
}

function verifySizes({ fixed, fields }: LocalHeader, entry: ZipEntry): void {
  const [size, packedSize] = fields.resolveZip64([fixed.readUInt32LE(22), fixed.readUInt32LE(18)])
  if (fixed.readUInt32LE(14) !== entry.crc) throw contradiction(entry, 'CRC')
  if (size !== entry.size || packedSize !== entry.packedSize) throw contradiction(entry, 'size')
}

function contradiction(entry: ZipEntry, what: string): Error {
  return invalidEntry(entry.name, `has another ${what} in its local header than in the directory`)
}
