import { invalidEntry } from '../../../core/archive/archive-entry.ts'
import { type ReadWindow, WINDOW_BYTES } from '../read-window.ts'
import type { LocatedZipEntry, ZipEntry } from './zip-entries.ts'

const SIGNATURE = 0x08074b50
const SIGNATURE_BYTES = 4
const SIGNATURE_TEXT = 'PK\x07\x08'
/** The length of a CRC and two sizes of 32 or 64 bits. The signature before them is optional. */
const SHORT_BYTES = 12
const LONG_BYTES = 20

/** The length of the longest data descriptor: one with a signature and sizes of 64 bits. */
export const MAX_DESCRIPTOR_BYTES = SIGNATURE_BYTES + LONG_BYTES

/** True if the bytes are exactly one data descriptor (APPNOTE 4.3.9), with the entry's own CRC and sizes. */
export function isDescriptorOf(bytes: Buffer, entry: ZipEntry): boolean {
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
export function* verifyFirstSignature(
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
