import { type ArchiveEntry, invalidArchive, invalidEntry, unsafeEntry } from '../../../core/archive/archive-entry.ts'
import { verifyEntryCount } from '../../../core/archive/archive-limits.ts'
import type { ArchiveListing } from '../../../core/archive/archive-policy.ts'
import { decodeEntryText } from '../../../core/archive/entry-names.ts'
import { MAX_PATH_BYTES } from '../../../core/limits.ts'
import { type ReadWindow, WINDOW_BYTES } from '../read-window.ts'
import type { OpenZip } from './open-zip.ts'
import { type DirectoryLocation, locateDirectory } from './zip-end-record.ts'
import { entryType, isOwnerExecutable } from './zip-entry-type.ts'
import { ZipExtraFields } from './zip-extra-fields.ts'

export type ZipMethod = 'stored' | 'deflated'

/** An entry as the central directory lists it. */
export interface ZipEntry extends ArchiveEntry {
  readonly packedSize: number
  readonly method: ZipMethod
  /** CRC-32 that the unpacked bytes must have; signed, because V8 keeps larger numbers as objects. */
  readonly crc: number
  /** Position of its local header. */
  readonly headerOffset: number
  /** Position of its packed bytes; undefined until the local header has been read. */
  readonly dataOffset: number | undefined
}

export interface ZipDirectory extends DirectoryLocation {
  /** In the order of the directory. */
  readonly entries: readonly ZipEntry[]
}

/** A central header and its parts of variable length. */
interface CentralHeader {
  readonly fixed: Buffer
  readonly rawName: Buffer
  readonly extra: Buffer
  readonly bytes: number
}

const HEADER_SIGNATURE = 0x02014b50
const HEADER_BYTES = 46
const ENCRYPTED = 0x0001
const PATCHED = 0x0020
const STRONGLY_ENCRYPTED = 0x0040
const UTF8_NAME = 0x0800
const MASKED = 0x2000
const METHODS: ReadonlyMap<number, ZipMethod> = new Map([
  [0, 'stored'],
  [8, 'deflated'],
])

/**
 * Lists a ZIP by its central directory alone, which must contain exactly the promised headers and nothing else, and
 * adds each entry to `listing` as soon as it is read. Throws what the listing throws, and ArchiveError
 * `invalid_archive` for damage, encryption and methods other than stored and deflate, `unsafe_archive` for names in no
 * or two encodings, `archive_too_large` above `max-entries`, `empty_artifact`.
 */
export async function readZipDirectory(
  { window, rules, slice }: OpenZip,
  listing: ArchiveListing<ZipEntry>,
): Promise<ZipDirectory> {
  const location = locateDirectory(window)
  verifyEntryCount(location.count, rules)
  const entries: ZipEntry[] = []
  const end = location.offset + location.size
  let at = location.offset
  while (at < end) {
    if (entries.length === location.count)
      throw invalidArchive(`its directory contains more than the ${location.count} headers it promises`)
    const header = readHeader(window, at, end)
    const entry = parseEntry(header)
    listing.add(entry)
    entries.push(entry)
    at += header.bytes
    if (slice.isOver()) await slice.giveBack()
  }
  if (entries.length !== location.count) {
    throw invalidArchive(`its directory contains ${entries.length} headers where it promises ${location.count}`)
  }
  return { ...location, entries }
}

/** Whether a header says that its name is UTF-8. */
export function isUtf8Name(flags: number): boolean {
  return (flags & UTF8_NAME) !== 0
}

/** Throws ArchiveError `invalid_archive` for entries that cannot be read here: encrypted, patched and masked ones. */
export function verifyFlags(flags: number, name: string): void {
  if ((flags & (ENCRYPTED | STRONGLY_ENCRYPTED)) !== 0) throw invalidEntry(name, 'is encrypted')
  if ((flags & PATCHED) !== 0) throw invalidEntry(name, 'is patch data')
  if ((flags & MASKED) !== 0) throw invalidEntry(name, 'has masked header values')
}

/** Throws ArchiveError `invalid_archive` for every method but stored and deflate. */
export function parseMethod(method: number, name: string): ZipMethod {
  const known = METHODS.get(method)
  if (known === undefined)
    throw invalidEntry(name, `is packed by method ${method}, where only stored (0) and deflate (8) are read`)
  return known
}

function readHeader(window: ReadWindow, at: number, end: number): CentralHeader {
  if (at + HEADER_BYTES > end) throw invalidArchive('its directory is cut short')
  const fixed = window.look(at, HEADER_BYTES, WINDOW_BYTES)
  if (fixed.readUInt32LE(0) !== HEADER_SIGNATURE)
    throw invalidArchive('its directory contains something that is not a header')
  const extraAt = HEADER_BYTES + fixed.readUInt16LE(28)
  const commentAt = extraAt + fixed.readUInt16LE(30)
  const bytes = commentAt + fixed.readUInt16LE(32)
  if (at + bytes > end) throw invalidArchive('its directory is cut short')
  const whole = window.look(at, bytes, WINDOW_BYTES)
  return {
    fixed: whole,
    rawName: whole.subarray(HEADER_BYTES, extraAt),
    extra: whole.subarray(extraAt, commentAt),
    bytes,
  }
}

function parseEntry({ fixed, rawName, extra }: CentralHeader): ZipEntry {
  const flags = fixed.readUInt16LE(8)
  const shown = rawName.toString('utf8')
  const fields = new ZipExtraFields(extra, shown)
  fields.verifyUnicodePath(rawName)
  const name = parseName(rawName, isUtf8Name(flags) || fields.hasUnicodePath)
  verifyFlags(flags, name)
  if (fixed.readUInt16LE(34) !== 0) throw invalidEntry(name, 'is on another disk')
  const packed = [fixed.readUInt32LE(24), fixed.readUInt32LE(20), fixed.readUInt32LE(42)]
  const [size = 0, packedSize = 0, headerOffset = 0] = fields.resolveZip64(packed)
  const method = parseMethod(fixed.readUInt16LE(10), name)
  if (method === 'stored' && size !== packedSize) throw invalidEntry(name, 'is stored but has two different sizes')
  const attributes = { system: fixed.readUInt8(5), external: fixed.readUInt32LE(38) }
  const type = entryType(attributes, name)
  const executable = isOwnerExecutable(attributes)
  const crc = fixed.readInt32LE(16)
  // Named here, although it is set later: a property that is added takes memory of its own.
  const dataOffset = undefined
  return { name, type, size, packedSize, headerOffset, dataOffset, method, crc, executable, target: null }
}

/** UTF-8 by its flag, or vouched for by a Unicode path; else ASCII. */
function parseName(rawName: Buffer, isUtf8: boolean): string {
  const name = decodeEntryText(rawName, isUtf8 ? 'utf-8' : 'ascii')
  if (rawName.length > MAX_PATH_BYTES + 1) throw unsafeEntry(name, `has a path of more than ${MAX_PATH_BYTES} bytes`)
  return name
}
