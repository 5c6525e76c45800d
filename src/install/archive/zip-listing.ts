import { crc32 } from 'node:zlib'
import { type ArchiveEntry, invalidArchive, invalidEntry, unsafeEntry } from '../../core/archive/planned-tree.ts'
import {
  type ArchiveListing,
  decodeEntryName,
  type ExtractionRules,
  verifyEntryCount,
} from '../../core/archive/policy.ts'
import { ArchiveError } from '../../core/errors.ts'
import { MAX_PATH_BYTES } from '../../core/identifiers.ts'
import { countInWords } from '../../core/text.ts'
import type { TimeSlice } from '../files/time-slice.ts'
import { type ReadWindow, WINDOW_BYTES } from './pieces.ts'

export interface ZipDirectory extends DirectoryLocation {
  /** Numbered from 0. */
  readonly entries: readonly ListedZipEntry[]
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
  const entries: ListedZipEntry[] = []
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
    addTo(listing, entry)
    if (entry.type === 'symlink') symlinks.push(entries.length)
    const { name, size, packedSize, method, crc, headerOffset } = entry
    entries.push({ name, size, packedSize, method, crc, headerOffset, dataOffset: 0 })
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

/** Drops a leading `./`, which some archivers write, as the tar reader does. */
function addTo(listing: ArchiveListing, entry: ListedEntry): void {
  const isTop = entry.type === 'directory' && entry.name === './' && entry.size === 0
  if (isTop) listing.addTop()
  else listing.add(entry.name.startsWith('./') ? { ...entry, name: entry.name.slice(2) } : entry)
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

/** The position and size of a ZIP's central directory, and the number of headers that the end record promises. */
interface DirectoryLocation {
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
export const SATURATED_32 = 0xffffffff

/**
 * Finds the only central directory of a ZIP. Requires exactly one end record whose comment ends with the file. That
 * comment must not contain the signature of another end record. Requires one disk, and the directory immediately before
 * its end record. Accepts zip64 only if a field asks for it, and without an extensible sector. Throws ArchiveError
 * `invalid_archive` for anything in which another reader might find another directory, and `empty_artifact` for an
 * empty directory.
 */
function locateDirectory(window: ReadWindow): DirectoryLocation {
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

const TYPE_MASK = 0o170000
const DIRECTORY_TYPE = 0o040000
const PERMISSIONS = 0o777
const OWNER_EXECUTE = 0o100
const DOS_DIRECTORY = 0x10

const UNIX_TYPES: ReadonlyMap<number, ArchiveEntry['type']> = new Map([
  [0o010000, 'fifo'],
  [0o020000, 'character device'],
  [DIRECTORY_TYPE, 'directory'],
  [0o060000, 'block device'],
  [0o100000, 'file'],
  [0o120000, 'symlink'],
  [0o140000, 'socket'],
])

const DOS = 0
const UNIX = 3
/** The systems whose archives have meaningful Unix modes: Unix and OS X. */
const UNIX_SYSTEMS: ReadonlySet<number> = new Set([UNIX, 19])

/** The attributes of an entry, as the system that made it wrote them. */
interface EntryAttributes {
  /** APPNOTE 4.4.2: 0 is DOS, 3 is Unix, 19 is OS X. */
  readonly system: number
  readonly external: number
}

/**
 * Returns the Unix type of an entry if a Unix system gave it one. Otherwise, an entry is a directory if its name ends
 * in `/`, and a file if not.
 * Throws ArchiveError `unsafe_archive` if the attributes mark the entry as a directory but its name does not end in
 * `/`. Also throws it if they mark the entry as a symlink, device or the like although neither Unix nor DOS made it:
 * some tools believe such attributes, and others extract a file.
 */
function entryType(attributes: EntryAttributes, name: string): ArchiveEntry['type'] {
  verifySystem(attributes, name)
  const unixType = unixMode(attributes) & TYPE_MASK
  const isNamedDirectory = name.endsWith('/')
  const isMarkedDirectory =
    unixType === DIRECTORY_TYPE || (unixType === 0 && (attributes.external & DOS_DIRECTORY) !== 0)
  if (isMarkedDirectory && !isNamedDirectory) throw unsafeEntry(name, 'is marked as a directory but named as a file')
  if (unixType === 0) return isNamedDirectory ? 'directory' : 'file'
  return UNIX_TYPES.get(unixType) ?? 'unknown type'
}

/** Accepts any entry that Unix or DOS made. The Unix type of an entry from DOS is ignored, as unzip ignores it. */
function verifySystem({ system, external }: EntryAttributes, name: string): void {
  if (system === UNIX || system === DOS) return
  const type = UNIX_TYPES.get((external >>> 16) & TYPE_MASK) ?? 'file'
  if (type !== 'file' && type !== 'directory')
    throw unsafeEntry(
      name,
      `is marked as a ${type} by a system (number ${system} in the ZIP format) whose attributes tools interpret differently`,
    )
}

/** Null for an entry without permissions of Unix. */
function isOwnerExecutable(attributes: EntryAttributes): boolean | null {
  const mode = unixMode(attributes)
  return (mode & PERMISSIONS) === 0 ? null : (mode & OWNER_EXECUTE) !== 0
}

/** Returns 0 if neither Unix nor OS X wrote the attributes. */
function unixMode({ system, external }: EntryAttributes): number {
  return UNIX_SYSTEMS.has(system) ? external >>> 16 : 0
}

const ZIP64_ID = 0x0001
const UNICODE_PATH_ID = 0x7075
const UNICODE_PATH_VERSION = 1
/** The fields of ASi Unix and libarchive, from which some tools take an entry's type and a symlink's target. */
const TYPE_IDS: ReadonlySet<number> = new Set([0x756e, 0x6c78])
/** The bytes before the path in a Unicode path field: the version, and the CRC of the name that the path replaces. */
const UNICODE_PATH_PREFIX_BYTES = 5
const FIELD_HEADER_BYTES = 4

/** The position of the extra fields of a header, and the name of the entry for messages. */
interface ExtraFieldsAt {
  readonly start: number
  readonly end: number
  readonly rawName: Buffer
}

/** The extra fields of a header that change what its entry is. */
export class ZipExtraFields {
  readonly #rawName: Buffer
  readonly #zip64: Buffer | undefined
  readonly #unicodePath: Buffer | undefined

  /**
   * Throws ArchiveError `invalid_archive` if the data of a field is cut short, or if a zip64 or Unicode path field
   * occurs twice. Throws `unsafe_archive` for a field that gives the entry another type in some tools.
   */
  constructor(header: Buffer, { start, end: extraEnd, rawName }: ExtraFieldsAt) {
    this.#rawName = rawName
    for (let at = start; at + FIELD_HEADER_BYTES <= extraEnd; ) {
      const id = header.readUInt16LE(at)
      const end = at + FIELD_HEADER_BYTES + header.readUInt16LE(at + 2)
      if (end > extraEnd) throw invalidEntry(this.#showName(), 'has an extra field that is cut short')
      // Creates a view only of a field that matters: nearly every entry has other fields.
      const value = (): Buffer => header.subarray(at + FIELD_HEADER_BYTES, end)
      if (TYPE_IDS.has(id)) throw unsafeEntry(this.#showName(), 'has an extra field that could make it a symlink')
      if (id === ZIP64_ID) this.#zip64 = this.#onlyOnce(this.#zip64, value())
      if (id === UNICODE_PATH_ID) this.#unicodePath = this.#onlyOnce(this.#unicodePath, value())
      at = end
    }
  }

  get hasZip64(): boolean {
    return this.#zip64 !== undefined
  }

  /** True if a Unicode path says that the header's name is UTF-8. */
  get hasUnicodePath(): boolean {
    return this.#unicodePath !== undefined
  }

  /**
   * Throws ArchiveError `unsafe_archive` if a Unicode path differs from the header's name, because some tools would use
   * the Unicode path. Throws `invalid_archive` if the field is cut short, has another version or was made for another
   * name.
   */
  verifyUnicodePath(rawName: Uint8Array): void {
    const path = this.#unicodePath
    if (path === undefined) return
    const isWhole = path.length >= UNICODE_PATH_PREFIX_BYTES && path[0] === UNICODE_PATH_VERSION
    if (!isWhole || path.readUInt32LE(1) !== crc32(rawName)) {
      throw invalidEntry(
        this.#showName(),
        'has a Unicode path field that is cut short, has an unknown version or was made for a different name',
      )
    }
    if (!path.subarray(UNICODE_PATH_PREFIX_BYTES).equals(rawName)) {
      throw unsafeEntry(this.#showName(), 'has a second, different name in its Unicode path field')
    }
  }

  /**
   * Returns the true values of 32-bit fields. The zip64 field contains a 64-bit value for each saturated 32-bit field.
   * Pass `fields` in the order of these values. Throws ArchiveError `invalid_archive` if a value is missing or too
   * large for a JavaScript integer.
   */
  resolveZip64(fields: readonly number[]): readonly number[] {
    if (!fields.includes(SATURATED_32)) return fields
    let at = 0
    return fields.map(field => {
      if (field !== SATURATED_32) return field
      const value = this.#zip64At(at)
      at += 8
      return value
    })
  }

  #zip64At(at: number): number {
    if (this.#zip64 === undefined || at + 8 > this.#zip64.length)
      throw invalidEntry(this.#showName(), 'lacks the zip64 value of a size or position')
    const value = this.#zip64.readBigUInt64LE(at)
    if (value > BigInt(Number.MAX_SAFE_INTEGER))
      throw invalidEntry(this.#showName(), 'has a size or position that is impossibly large')
    return Number(value)
  }

  #showName(): string {
    return this.#rawName.toString('utf8')
  }

  #onlyOnce(before: Buffer | undefined, value: Buffer): Buffer {
    if (before !== undefined) throw invalidEntry(this.#showName(), 'has the same extra field twice')
    return value
  }
}

type ZipMethod = 'stored' | 'deflated'

/** The method and the sizes of an entry. */
export interface ZipPacking {
  readonly method: ZipMethod
  /** The unpacked size in bytes. */
  readonly size: number
  /** The size in the archive in bytes. */
  readonly packedSize: number
}

/** An entry as the central directory lists it. */
export interface ZipEntry extends ZipPacking {
  readonly name: string
  /** The CRC-32 that the unpacked bytes must have, as a signed number. */
  readonly crc: number
  /** The position of the local header. */
  readonly headerOffset: number
}

/** An entry whose local header is still to be compared with the directory: only then is `dataOffset` known. */
interface ListedZipEntry extends ZipEntry {
  dataOffset: number
}

/** An entry whose local header has been compared with the directory. */
export interface LocatedZipEntry extends ZipEntry {
  /** The position of the packed bytes. */
  readonly dataOffset: number
}

/** A ZIP that is being read. */
export interface OpenZip {
  readonly window: ReadWindow
  /** The rules that the content must respect. */
  readonly rules: ExtractionRules
  /** The time slice that all work on the ZIP shares. */
  readonly slice: TimeSlice
}

/** A ZIP whose entries have all been located. */
export interface LocatedZip {
  readonly window: ReadWindow
  /** By their numbers, which count the headers of the directory. */
  readonly entries: readonly LocatedZipEntry[]
}
