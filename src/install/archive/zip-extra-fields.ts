import { crc32 } from 'node:zlib'
import { invalidEntry, unsafeEntry } from '../../core/archive/archive-entry.ts'

const ZIP64_ID = 0x0001
const UNICODE_PATH_ID = 0x7075
const UNICODE_PATH_VERSION = 1
/** A Unicode path's version and the CRC of the name that it stands for. */
const UNICODE_PATH_PREFIX_BYTES = 5
const FIELD_HEADER_BYTES = 4
const SATURATED_32 = 0xffffffff

/** The extra fields of a header that change what the entry is. */
export interface ZipExtraFields {
  readonly zip64: Buffer | undefined
  readonly unicodePath: Buffer | undefined
}

/** Throws ArchiveError `invalid_archive` when a field is cut short, or one that matters is there twice. */
export function parseExtraFields(extra: Buffer, name: string): ZipExtraFields {
  let zip64: Buffer | undefined
  let unicodePath: Buffer | undefined
  for (let at = 0; at + FIELD_HEADER_BYTES <= extra.length; ) {
    const id = extra.readUInt16LE(at)
    const end = at + FIELD_HEADER_BYTES + extra.readUInt16LE(at + 2)
    if (end > extra.length) throw invalidEntry(name, 'has an extra field that is cut short')
    if (id === ZIP64_ID) zip64 = onlyOnce(zip64, extra.subarray(at + FIELD_HEADER_BYTES, end), name)
    if (id === UNICODE_PATH_ID) unicodePath = onlyOnce(unicodePath, extra.subarray(at + FIELD_HEADER_BYTES, end), name)
    at = end
  }
  return { zip64, unicodePath }
}

/**
 * Throws ArchiveError `unsafe_archive` when a Unicode path says another name than the header: some tools would use it;
 * `invalid_archive` when it is of another version or made for another name. One that passes says that the name is UTF-8.
 */
export function verifyUnicodePath(unicodePath: Buffer | undefined, rawName: Uint8Array, name: string): void {
  if (unicodePath === undefined) return
  const isWhole = unicodePath.length >= UNICODE_PATH_PREFIX_BYTES && unicodePath[0] === UNICODE_PATH_VERSION
  if (!isWhole || unicodePath.readUInt32LE(1) !== crc32(rawName)) {
    throw invalidEntry(name, 'has a Unicode path field of another version or for another name')
  }
  if (!unicodePath.subarray(UNICODE_PATH_PREFIX_BYTES).equals(rawName)) {
    throw unsafeEntry(name, 'has a second, different name in its Unicode path field')
  }
}

/**
 * The true values of 32-bit fields, given in the order of the zip64 field: each one that is saturated is there in 64 bits.
 * Throws ArchiveError `invalid_archive` when one is missing or beyond all measure.
 */
export function resolveZip64(fields: readonly number[], zip64: Buffer | undefined, name: string): number[] {
  let at = 0
  return fields.map(field => {
    if (field !== SATURATED_32) return field
    if (zip64 === undefined || at + 8 > zip64.length) throw invalidEntry(name, 'lacks its zip64 sizes')
    const value = zip64.readBigUInt64LE(at)
    at += 8
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw invalidEntry(name, 'has a size beyond all measure')
    return Number(value)
  })
}

function onlyOnce(before: Buffer | undefined, value: Buffer, name: string): Buffer {
  if (before !== undefined) throw invalidEntry(name, 'has the same extra field twice')
  return value
}
