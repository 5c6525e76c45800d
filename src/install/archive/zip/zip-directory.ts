import { type ArchiveEntry, invalidArchive, invalidEntry, unsafeEntry } from '../../../core/archive/archive-entry.ts'
import { verifyEntryCount } from '../../../core/archive/archive-limits.ts'
import type { ArchiveListing } from '../../../core/archive/archive-policy.ts'
import { decodeEntryName } from '../../../core/archive/entry-names.ts'
import { MAX_PATH_BYTES } from '../../../core/limits.ts'
import { countInWords } from '../../../core/quantities.ts'
import { type ReadWindow, WINDOW_BYTES } from '../read-window.ts'
import type { OpenZip } from './open-zip.ts'
import { type DirectoryLocation, locateDirectory } from './zip-end-record.ts'
import { ZipEntries, type ZipEntry, type ZipMethod } from './zip-entries.ts'
import { entryType, isOwnerExecutable } from './zip-entry-type.ts'
import { ZipExtraFields } from './zip-extra-fields.ts'

export interface ZipDirectory extends DirectoryLocation {
  readonly entries: ZipEntries
  /** The numbers of the symlinks, whose targets have not been read yet. */
  readonly symlinks: readonly number[]
}

type ListedEntry = ZipEntry & ArchiveEntry & { readonly packedSize: number }

/** A central header, and the positions of its parts of variable length. */
interface CentralHeader {
  /** The header, perhaps followed by more of the directory. */
  readonly bytes: Buffer
  readonly extraAt: number
  readonly commentAt: number
  readonly length: number
}

const HEADER_SIGNATURE = 0x02014b50
const HEADER_BYTES = 46
/**
 * Most headers, central and local, fit into this many bytes with their names and extra fields, so one view is enough.
 */
export const MOST_HEADER_BYTES = 512
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
 * Lists a ZIP by its central directory alone. The directory must contain exactly the headers that the end record
 * promises, and nothing else. Adds each entry to `listing` as soon as it is read. Throws what the listing throws, and
 * ArchiveError `invalid_archive` (damage, encryption, patch data, a split archive, or a method other than stored and
 * deflate), `unsafe_archive` (a path that is too long, or a name or type that tools read differently),
 * `archive_too_large` (more than `max-entries`) or `empty_artifact`. Throws the signal's reason once the slice's signal
 * is aborted.
 */
export async function readZipDirectory(
  { window, rules, slice }: OpenZip,
  listing: ArchiveListing,
): Promise<ZipDirectory> {
  const location = locateDirectory(window)
  verifyEntryCount(location.count, rules)
  const entries = new ZipEntries()
  const symlinks: number[] = []
  const end = location.offset + location.size
  let at = location.offset
  while (at < end) {
    if (entries.length === location.count)
      throw invalidArchive(
        `its directory contains more headers than the ${location.count} that its end record promises`,
      )
    const header = readHeader(window, at, end)
    const entry = parseEntry(header)
    listing.add(entry)
    if (entry.type === 'symlink') symlinks.push(entries.length)
    entries.add(entry)
    at += header.length
    if (slice.isOver()) await slice.giveBack()
  }
  if (entries.length !== location.count) {
    throw invalidArchive(
      `its directory contains ${countInWords(entries.length, 'header')}, but its end record promises ${location.count}`,
    )
  }
  return { ...location, entries, symlinks }
}

/** True if a header says that its name is UTF-8. */
export function isUtf8Name(flags: number): boolean {
  return (flags & UTF8_NAME) !== 0
}

/** Throws ArchiveError `invalid_archive` for an entry that is encrypted, is patch data or has masked header values. */
export function verifyFlags(flags: number, name: string): void {
  if ((flags & (ENCRYPTED | STRONGLY_ENCRYPTED)) !== 0) throw invalidEntry(name, 'is encrypted')
  if ((flags & PATCHED) !== 0) throw invalidEntry(name, 'is patch data')
  if ((flags & MASKED) !== 0) throw invalidEntry(name, 'has masked header values')
}

/** Throws ArchiveError `invalid_archive` for every method but stored and deflate. */
export function parseMethod(method: number, name: string): ZipMethod {
  const known = METHODS.get(method)
  if (known === undefined)
    throw invalidEntry(name, `is packed by method ${method}, but only stored (0) and deflate (8) are accepted`)
  return known
}

function readHeader(window: ReadWindow, at: number, end: number): CentralHeader {
  if (at + HEADER_BYTES > end) throw invalidArchive('its directory is cut short')
  const start = window.look(at, Math.min(MOST_HEADER_BYTES, end - at), WINDOW_BYTES)
  if (start.readUInt32LE(0) !== HEADER_SIGNATURE)
    throw invalidArchive('its directory contains bytes that are not a header')
  const extraAt = HEADER_BYTES + start.readUInt16LE(28)
  const commentAt = extraAt + start.readUInt16LE(30)
  const length = commentAt + start.readUInt16LE(32)
  if (at + length > end) throw invalidArchive('its directory is cut short')
  const bytes = length <= start.length ? start : window.look(at, length, WINDOW_BYTES)
  return { bytes, extraAt, commentAt, length }
}

function parseEntry({ bytes, extraAt, commentAt }: CentralHeader): ListedEntry {
  const flags = bytes.readUInt16LE(8)
  const rawName = bytes.subarray(HEADER_BYTES, extraAt)
  const fields = new ZipExtraFields(bytes, { start: extraAt, end: commentAt, rawName })
  fields.verifyUnicodePath(rawName)
  const name = parseName(rawName, isUtf8Name(flags) || fields.hasUnicodePath)
  verifyFlags(flags, name)
  if (bytes.readUInt16LE(34) !== 0) throw invalidEntry(name, 'is in another part of a split archive')
  const packed = [bytes.readUInt32LE(24), bytes.readUInt32LE(20), bytes.readUInt32LE(42)]
  const [size = 0, packedSize = 0, headerOffset = 0] = fields.resolveZip64(packed)
  const method = parseMethod(bytes.readUInt16LE(10), name)
  if (method === 'stored' && size !== packedSize) throw invalidEntry(name, 'is stored but has two different sizes')
  const attributes = { system: bytes.readUInt8(5), external: bytes.readUInt32LE(38) }
  const type = entryType(attributes, name)
  const executable = isOwnerExecutable(attributes)
  const crc = bytes.readInt32LE(16)
  return { name, type, size, packedSize, headerOffset, method, crc, executable, target: null }
}

/** Decodes a name as UTF-8 if a flag or a Unicode path vouches for it, otherwise as ASCII. */
function parseName(rawName: Buffer, isUtf8: boolean): string {
  const name = decodeEntryName(rawName, isUtf8 ? 'utf-8' : 'ascii')
  if (rawName.length > MAX_PATH_BYTES + 1) throw unsafeEntry(name, `has a path of more than ${MAX_PATH_BYTES} bytes`)
  return name
}
