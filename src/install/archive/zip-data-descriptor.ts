import type { ZipEntry } from './zip-directory.ts'

const SIGNATURE = 0x08074b50
const SIGNATURE_BYTES = 4
/** CRC and two sizes of 32 or 64 bits; each with or without the signature before it. */
const SHORT_BYTES = 12
const LONG_BYTES = 20

/** Of the four forms. */
export const MAX_DESCRIPTOR_BYTES = SIGNATURE_BYTES + LONG_BYTES

/** Whether bytes are a data descriptor (APPNOTE 4.3.9), whole and nothing more, with an entry's own CRC and sizes. */
export function isDescriptorOf(bytes: Buffer, entry: ZipEntry): boolean {
  const isSigned = bytes.length === SIGNATURE_BYTES + SHORT_BYTES || bytes.length === SIGNATURE_BYTES + LONG_BYTES
  if (isSigned && bytes.readUInt32LE(0) !== SIGNATURE) return false
  const fields = isSigned ? bytes.subarray(SIGNATURE_BYTES) : bytes
  if (fields.length !== SHORT_BYTES && fields.length !== LONG_BYTES) return false
  const [packedSize, size] = fields.length === SHORT_BYTES ? readShortSizes(fields) : readLongSizes(fields)
  return fields.readUInt32LE(0) === entry.crc && packedSize === entry.packedSize && size === entry.size
}

function readShortSizes(fields: Buffer): [number, number] {
  return [fields.readUInt32LE(4), fields.readUInt32LE(8)]
}

function readLongSizes(fields: Buffer): [number, number] {
  return [Number(fields.readBigUInt64LE(4)), Number(fields.readBigUInt64LE(12))]
}
