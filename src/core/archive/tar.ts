import { cleanForeignText } from '../text.ts'
import { type ArchiveEntry, type ExtractableType, invalidArchive, invalidEntry, unsafeEntry } from './planned-tree.ts'
import {
  decodeEntryName,
  decodeTarget,
  type ExtractionLimits,
  requireExtractable,
  verifyEntryCount,
  verifyExtensionBytes,
  verifyExtractedBytes,
} from './policy.ts'

/** The size of a header; all data is padded to a multiple of this size. */
const TAR_BLOCK_BYTES = 512

/** The type of a header's member, or the kind of extra fields that the header announces for the next member. */
type TarHeaderType = ArchiveEntry['type'] | 'sparse file' | 'pax' | 'pax global' | 'gnu name' | 'gnu link name'

/** A header block with a correct checksum. Its texts may share the memory of the block. */
interface TarHeader {
  /**
   * As stored, after the prefix if there is one. May be cut off inside a character if an extension header has the whole
   * name.
   */
  readonly name: Buffer
  readonly linkName: Buffer
  readonly type: TarHeaderType
  /** The number of bytes of data that follow, without padding. */
  readonly size: number
  /** The owner's x bit. */
  readonly executable: boolean
}

const TYPES: ReadonlyMap<string, TarHeaderType> = new Map([
  ['\0', 'file'],
  ['0', 'file'],
  ['1', 'hard link'],
  ['2', 'symlink'],
  ['3', 'character device'],
  ['4', 'block device'],
  ['5', 'directory'],
  ['6', 'fifo'],
  ['S', 'sparse file'],
  ['x', 'pax'],
  ['g', 'pax global'],
  ['L', 'gnu name'],
  ['K', 'gnu link name'],
])

/** The position of a value in a header block. */
interface Field {
  readonly label: string
  readonly at: number
  readonly length: number
}

const FIELDS = {
  name: { label: 'name', at: 0, length: 100 },
  mode: { label: 'mode', at: 100, length: 8 },
  size: { label: 'size', at: 124, length: 12 },
  checksum: { label: 'checksum', at: 148, length: 8 },
  type: { label: 'type', at: 156, length: 1 },
  linkName: { label: 'link name', at: 157, length: 100 },
  magic: { label: 'magic', at: 257, length: 8 },
  prefix: { label: 'prefix', at: 345, length: 155 },
} as const satisfies Record<string, Field>

const OWNER_EXECUTE = 0o100
const SPACE = 0x20
const USTAR_MAGIC = 'ustar\x0000'
const GNU_MAGIC = 'ustar  \0'
const NO_MAGIC = '\0'.repeat(8)
const NO_TEXT = Buffer.alloc(0)
const OCTAL_FIELD = /^ *([0-7]+)[ \0]*$/

/**
 * Parses one header block of a tar: POSIX ustar, GNU, or the older form without a magic. Strict where tools differ, so
 * that all of them see the same members. Numbers must be octal digits, which excludes base-256 numbers and negative
 * sizes. A name has a prefix only if ustar's magic announces it. Throws ArchiveError `invalid_archive` for a wrong
 * checksum, another magic, an unannounced prefix, and a number in any other form.
 */
function parseTarHeader(block: Buffer): TarHeader {
  if (readOctal(block, FIELDS.checksum) !== checksum(block)) throw invalidArchive('a tar header has a wrong checksum')
  const magic = latin1Of(block, FIELDS.magic)
  if (magic !== USTAR_MAGIC && magic !== GNU_MAGIC && magic !== NO_MAGIC) {
    throw invalidArchive('a tar header has an unknown format')
  }
  const prefix = readText(block, FIELDS.prefix)
  if (magic !== USTAR_MAGIC && prefix.length > 0) {
    throw invalidArchive('a tar header has a name prefix without the ustar magic, so some tools ignore the prefix')
  }
  return {
    name: prefixedName(prefix, readText(block, FIELDS.name)),
    linkName: readText(block, FIELDS.linkName),
    type: TYPES.get(latin1Of(block, FIELDS.type)) ?? 'unknown type',
    size: readOctal(block, FIELDS.size),
    executable: (readOctal(block, FIELDS.mode) & OWNER_EXECUTE) !== 0,
  }
}

/** Counts the bytes of the checksum field as spaces. */
function checksum(block: Buffer): number {
  const { at: start, length } = FIELDS.checksum
  let sum = length * SPACE
  for (let at = 0; at < TAR_BLOCK_BYTES; at++) {
    if (at < start || at >= start + length) sum += block[at] as number
  }
  return sum
}

function prefixedName(prefix: Buffer, name: Buffer): Buffer {
  return prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from('/'), name])
}

function readText(block: Buffer, { at, length }: Field): Buffer {
  // Most headers have neither a prefix nor a link name, and a Buffer costs more than this check.
  if (block[at] === 0) return NO_TEXT
  const end = block.indexOf(0, at)
  return block.subarray(at, end === -1 ? at + length : Math.min(end, at + length))
}

function readOctal(block: Buffer, field: Field): number {
  const digits = OCTAL_FIELD.exec(latin1Of(block, field))?.[1]
  if (digits === undefined) throw invalidArchive(`a tar header has a ${field.label} that is not an octal number`)
  return Number.parseInt(digits, 8)
}

function latin1Of(block: Buffer, { at, length }: Field): string {
  return block.toString('latin1', at, at + length)
}

/** The next bytes of a member's data. A member without data has one empty part. */
export interface TarPart {
  readonly entry: TarEntry
  /** A slice of the piece that was read. */
  readonly data: Buffer
  readonly isFirst: boolean
  readonly isLast: boolean
}

/** A member whose data is still to come. */
interface OpenMember {
  readonly entry: TarEntry
  missing: number
}

/** The limit for all PAX headers and long names before one member. */
const MAX_EXTENSION_BYTES = 64 * 1024
const END_BLOCKS = 2
/** 1 MiB: packers fill up their last record, which is at most that large. */
const MAX_END_BLOCKS = 2048
const ZEROS = Buffer.alloc(TAR_BLOCK_BYTES)
const NO_DATA = Buffer.alloc(0)

/** The next unit of the tar: a header block, or the data of an extension header. */
interface Next {
  /** Including padding. */
  readonly bytes: number
  /** Null for a header block. */
  readonly header: TarHeader | null
}

const HEADER_BLOCK: Next = { bytes: TAR_BLOCK_BYTES, header: null }

/**
 * Reads a tar that arrives in pieces. Is stricter than other tools, so that no two tools can see different members.
 * Every header must have a correct checksum, and every member must be complete. The tar must end in two blocks of
 * zeros; only more such blocks may follow, up to 1 MiB.
 */
export class TarReader {
  readonly #limits: ExtractionLimits
  #count = 0
  #next: Next = HEADER_BLOCK
  /** The beginning of the next unit, if a piece ends in the middle of it. */
  #begun: Buffer[] = []
  #begunBytes = 0
  #announced: Announced = {}
  /** The number of bytes in the extension headers since the last member, and in all extensions with their headers. */
  #announcedBytes = 0
  #extensionBytes = 0
  #member: OpenMember | null = null
  #padding = 0
  #bytes = 0
  #endBlocks = 0

  constructor(limits: ExtractionLimits) {
    this.#limits = limits
  }

  /**
   * Yields the members in the next piece, part by part. Take all parts before you pass the next piece. Throws
   * ArchiveError `invalid_archive` for a damaged or misleading tar, and `archive_too_large` above a limit. Throws
   * `unsafe_archive` for a member that `toEntry` refuses and for names that are not UTF-8.
   */
  *read(piece: Buffer): Generator<TarPart> {
    for (let at = 0; at < piece.length; ) {
      if (this.#member !== null) {
        const part = this.#partOf(this.#member, piece, at)
        at += part.data.length
        yield part
      } else if (this.#padding > 0) at += this.#skip(piece.length - at)
      else {
        at += this.#collect(piece, at)
        const empty = this.#closeEmpty()
        if (empty !== null) yield empty
      }
    }
  }

  /** Throws ArchiveError `invalid_archive` unless the archive is complete. */
  finish(): void {
    if (!this.isComplete) throw invalidArchive('its tar is incomplete')
  }

  /** True if a complete tar was read. */
  get isComplete(): boolean {
    return this.#endBlocks >= END_BLOCKS && this.#begunBytes === 0
  }

  #partOf(member: OpenMember, piece: Buffer, at: number): TarPart {
    const { entry, missing } = member
    const data = piece.subarray(at, at + missing)
    member.missing -= data.length
    const isLast = member.missing === 0
    if (isLast) this.#member = null
    return { entry, data, isFirst: missing === entry.size, isLast }
  }

  #closeEmpty(): TarPart | null {
    if (this.#member === null || this.#member.missing > 0) return null
    return this.#partOf(this.#member, NO_DATA, 0)
  }

  #skip(available: number): number {
    const skipped = Math.min(this.#padding, available)
    this.#padding -= skipped
    return skipped
  }

  /** Takes most blocks directly from the piece, without a copy. */
  #collect(piece: Buffer, at: number): number {
    const part = piece.subarray(at, at + this.#next.bytes - this.#begunBytes)
    this.#begunBytes += part.length
    if (part.length === this.#next.bytes) this.#take(part)
    else {
      this.#begun.push(Buffer.from(part))
      if (this.#begunBytes === this.#next.bytes) this.#take(Buffer.concat(this.#begun))
    }
    return part.length
  }

  #take(block: Buffer): void {
    const { header } = this.#next
    this.#next = HEADER_BLOCK
    this.#begun = []
    this.#begunBytes = 0
    if (header !== null) this.#announce(header, block.subarray(0, header.size))
    else if (block.equals(ZEROS)) this.#end()
    else this.#open(parseTarHeader(block))
  }

  #end(): void {
    if (Object.keys(this.#announced).length > 0)
      throw invalidArchive('its tar ends after an extension header, without the member that the header announces')
    this.#endBlocks += 1
    if (this.#endBlocks > MAX_END_BLOCKS) throw invalidArchive('its tar is followed by more than 1 MiB of zeros')
  }

  #open(header: TarHeader): void {
    if (this.#endBlocks > 0) throw invalidArchive('its tar is followed by other data')
    if (isExtension(header)) this.#next = this.#extensionData(header)
    else this.#openMember(header)
  }

  #extensionData(header: TarHeader): Next {
    this.#announcedBytes += header.size
    // Without the headers, the smallest extensions could make a tar of gigabytes.
    this.#extensionBytes += TAR_BLOCK_BYTES + header.size
    if (header.size === 0) throw invalidArchive('its tar has an empty extension header')
    if (this.#announcedBytes > MAX_EXTENSION_BYTES)
      throw invalidArchive(
        `its tar has more than ${MAX_EXTENSION_BYTES} bytes of PAX headers and long names before one member`,
      )
    verifyExtensionBytes(this.#extensionBytes, this.#limits)
    return { bytes: padded(header.size), header }
  }

  #announce(header: TarHeader, body: Buffer): void {
    if (header.type === 'pax global') verifyGlobalPax(body)
    else this.#announced = withExtension(this.#announced, header, body)
  }

  #openMember(header: TarHeader): void {
    const entry = toEntry(header, this.#announced)
    this.#announced = {}
    this.#announcedBytes = 0
    this.#bytes += entry.size
    this.#count += 1
    verifyEntryCount(this.#count, this.#limits)
    verifyExtractedBytes(this.#bytes, this.#limits)
    this.#padding = padded(entry.size) - entry.size
    this.#member = { entry, missing: entry.size }
  }
}

function padded(size: number): number {
  return Math.ceil(size / TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES
}

/** A member of a tar as an entry of its listing. Untrusted, like every entry. */
export interface TarEntry extends ArchiveEntry {
  /** The name as the archive stores it, whereas `name` has no leading `./`. */
  readonly storedName: string
}

/** The values that extension headers announced for the next member. */
interface Announced {
  readonly pax?: PaxFields
  readonly name?: string
  /** Not decoded yet. */
  readonly linkName?: Buffer
}

const MAX_USTAR_SIZE = 0o77777777777

/** True if a member is the archive's root, `./` or `.`, which an extraction does not create. */
export function isRoot({ storedName, type }: TarEntry): boolean {
  return type === 'directory' && (storedName === './' || storedName === '.')
}

/** True if a header announces values for a member that follows. */
function isExtension({ type }: TarHeader): boolean {
  return type === 'pax' || type === 'pax global' || type === 'gnu name' || type === 'gnu link name'
}

/**
 * Returns the announced values together with those of one more extension header of the same member. Throws ArchiveError
 * `invalid_archive` if the header is malformed, repeats an earlier one, or mixes PAX and GNU headers. Throws
 * `unsafe_archive` if a path or name in the header is not UTF-8. `toEntry` verifies targets.
 */
function withExtension(announced: Announced, { type }: TarHeader, body: Buffer): Announced {
  const key = type === 'pax' ? 'pax' : type === 'gnu name' ? 'name' : 'linkName'
  verifyAnnouncedOnce(announced, key)
  switch (key) {
    case 'pax':
      return { ...announced, pax: parsePaxFields(body) }
    case 'name':
      return { ...announced, name: decodeEntryName(longName(body), 'utf-8') }
    case 'linkName':
      return { ...announced, linkName: Buffer.from(longName(body)) }
  }
}

/**
 * Builds a member from its header and the values that were announced for it. Throws ArchiveError `unsafe_archive` for a
 * type that is not extracted (such as a sparse file), a file with a directory's name, a name or target that is not
 * UTF-8, and data in anything but a file. Throws `invalid_archive` for two different sizes.
 */
function toEntry(header: TarHeader, { pax = {}, name, linkName }: Announced): TarEntry {
  const storedName = pax.path ?? name ?? decodeEntryName(header.name, 'utf-8')
  if (pax.specialKey !== undefined) throw unsafeEntry(storedName, 'has a PAX key of a sparse, split or special file')
  const type = memberType(header.type, storedName)
  const size = pax.size ?? header.size
  // This check includes the root, which is never listed: some tools skip the data of a directory, and others read it as
  // more members.
  if (type !== 'file' && size > 0) throw unsafeEntry(storedName, `is a ${type} that contains data`)
  if (!agrees(header.size, size))
    throw invalidEntry(storedName, 'has one size in its PAX header and another size in its tar header')
  // An announced target is verified for every type, because another tool may follow it.
  const target = pax.linkpath ?? linkName
  const announced = target === undefined ? undefined : decodeTarget(target, storedName)
  return {
    name: storedName.startsWith('./') ? storedName.slice(2) : storedName,
    storedName,
    type,
    size,
    packedSize: null,
    executable: header.executable,
    target: type === 'symlink' ? (announced ?? decodeTarget(header.linkName, storedName)) : null,
  }
}

/**
 * Tools differ on which of two announcements wins. Each value may therefore be announced only once, and by either PAX
 * or GNU headers.
 */
function verifyAnnouncedOnce(announced: Announced, key: keyof Announced): void {
  const isMixed = key === 'pax' ? Object.keys(announced).length > 0 : announced.pax !== undefined
  if (isMixed || announced[key] !== undefined)
    throw invalidArchive('a tar member has a repeated extension header, or both PAX and GNU headers')
}

/** Returns the text before the first NUL. */
function longName(body: Buffer): Buffer {
  const end = body.indexOf(0)
  const name = end === -1 ? body : body.subarray(0, end)
  if (body.subarray(name.length).some(byte => byte !== 0))
    throw invalidArchive('a long tar name contains other data after its first NUL')
  return name
}

/** If a PAX size does not fit into the header's own field, that field is zero or full. */
function agrees(own: number, size: number): boolean {
  return own === size || (size > MAX_USTAR_SIZE && (own === 0 || own === MAX_USTAR_SIZE))
}

function memberType(type: TarHeader['type'], name: string): ExtractableType {
  if (type === 'file' && name.endsWith('/'))
    throw unsafeEntry(name, "is a file with a directory's name, for which some tools create a directory")
  return requireExtractable(name, type)
}

/** The fields of a PAX extended header that matter to the extraction of the next member. */
interface PaxFields {
  readonly path?: string
  /** Not decoded yet. */
  readonly linkpath?: Buffer
  /** Bytes. */
  readonly size?: number
  /** A key that makes the member different from what its header says, such as the key of a sparse file. */
  readonly specialKey?: string
}
const ZERO = 0x30
const NINE = 0x39
const EQUALS = 0x3d
const LINE_FEED = 0x0a
/** Without a limit, the search for the lengths of records could take time quadratic in the number of bytes. */
const MAX_LENGTH_DIGITS = 8
const DECIMAL = /^(0|[1-9][0-9]{0,14})$/
/** Longer than any key that matters. */
const MAX_KEY_BYTES = 64
const KEY_STARTS: ReadonlySet<number> = new Set(Buffer.from('plsGS'))
const NAMING_KEYS: ReadonlySet<string> = new Set(['path', 'linkpath', 'size'])
const SPECIAL_KEY = /^(GNU\.|SUN\.|SCHILY\.(realsize|filetype)$)/

/**
 * Parses the fields of a PAX extended header about one member. Omits keys that change neither name nor content, such as
 * times and attributes. Throws ArchiveError `invalid_archive` for malformed records, a repeated key that matters, an
 * empty path or linkpath, and a size that is not a number. Throws `unsafe_archive` for a path that is not UTF-8.
 */
function parsePaxFields(body: Buffer): PaxFields {
  const records = parseRecords(body)
  const [path, linkpath, size] = [records.get('path'), records.get('linkpath'), records.get('size')]
  const specialKey = [...records.keys()].find(key => SPECIAL_KEY.test(key))
  return {
    ...(path && { path: decodeEntryName(requireText(path), 'utf-8') }),
    ...(linkpath && { linkpath: Buffer.from(requireText(linkpath)) }),
    ...(size && { size: parseSize(size) }),
    ...(specialKey !== undefined && { specialKey }),
  }
}

/**
 * Refuses a PAX global header that sets names, targets, sizes or special keys, because they would apply to every member
 * that follows. (`git archive` writes a comment, and other tools write times and owners.) Throws ArchiveError
 * `invalid_archive` for such a header and for malformed records.
 */
function verifyGlobalPax(body: Buffer): void {
  const [key] = parseRecords(body).keys()
  if (key === undefined) return
  throw invalidArchive(`a PAX global header sets ${cleanForeignText(key)} for every member that follows`)
}

/**
 * Returns the records that change what a member is. Each has the form `<length> <key>=<value>\n`; the length counts
 * the whole record. Reads byte by byte, because a header may consist of thousands of records.
 */
function parseRecords(body: Buffer): Map<string, Buffer> {
  const records = new Map<string, Buffer>()
  for (let at = 0; at < body.length; ) {
    const keyAt = endOfDigits(body, at) + 1
    const end = at + parseLength(body, at, keyAt - 1)
    const equals = indexOfEquals(body, keyAt, end)
    if (body[keyAt - 1] !== SPACE || equals === keyAt || body[end - 1] !== LINE_FEED) throw malformed('record')
    const key = decisiveKey(body, keyAt, equals)
    if (key !== undefined && records.has(key)) throw invalidArchive('a PAX header repeats a key')
    if (key !== undefined) records.set(key, body.subarray(equals + 1, end - 1))
    at = end
  }
  return records
}

function endOfDigits(body: Buffer, start: number): number {
  let at = start
  while (at < start + MAX_LENGTH_DIGITS && isDigit(body[at])) at++
  return at
}

/** Does the same as `parseDecimal`, without a text for each of many records. */
function parseLength(body: Buffer, start: number, end: number): number {
  if (start === end || (body[start] === ZERO && end > start + 1)) throw malformed('number')
  let length = 0
  for (let at = start; at < end; at++) length = length * 10 + ((body[at] as number) - ZERO)
  return length
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= ZERO && byte <= NINE
}

function indexOfEquals(body: Buffer, start: number, end: number): number {
  if (end > body.length) throw malformed('record')
  let at = start
  while (at < end && body[at] !== EQUALS) at++
  if (at >= end) throw malformed('record')
  return at
}

/** Returns a key that matters, or undefined. Decoding every other key would cost more than reading it. */
function decisiveKey(body: Buffer, start: number, end: number): string | undefined {
  if (end - start > MAX_KEY_BYTES || !KEY_STARTS.has(body[start] ?? 0)) return undefined
  const key = body.toString('latin1', start, end)
  return NAMING_KEYS.has(key) || SPECIAL_KEY.test(key) ? key : undefined
}

function requireText(value: Buffer): Buffer {
  if (value.length === 0) throw invalidArchive('a PAX header has an empty path or linkpath')
  return value
}

function parseSize(value: Buffer): number {
  return parseDecimal(value.toString('latin1'))
}

function parseDecimal(digits: string): number {
  if (!DECIMAL.test(digits)) throw malformed('number')
  return Number(digits)
}

function malformed(field: string): Error {
  return invalidArchive(`a PAX header has a malformed ${field}`)
}
