import { hash } from 'node:crypto'
import { StreamedDigest } from '../trust/streamed-digest.ts'
import { type ArchiveEntry, type ExtractableType, invalidArchive, invalidEntry, unsafeEntry } from './archive-entry.ts'
import {
  type ExtractionLimits,
  verifyEntryCount,
  verifyExtensionBytes,
  verifyExtractedBytes,
} from './archive-limits.ts'
import { requireExtractable } from './archive-policy.ts'
import { decodeEntryText } from './entry-names.ts'
import { parseTarHeader, TAR_BLOCK_BYTES, type TarHeader } from './tar-header.ts'
import { type PaxFields, parsePaxFields, verifyGlobalPax } from './tar-pax.ts'

/** A member of a tar. */
export interface TarEntry extends ArchiveEntry {
  /** The name as the archive stores it: `name` is without a leading `./`. */
  readonly storedName: string
  /** Position of its data in the tar. */
  readonly dataOffset: number
  /** Lowercase hex of its data. */
  readonly sha256: string
}

/** A member whose data is still to come. */
interface OpenMember {
  readonly entry: Omit<TarEntry, 'sha256'>
  readonly digest: StreamedDigest
  missing: number
}

/** Whether a member is the archive's root, `./` or `.`, which an extraction does not create. */
export function isRoot({ storedName, type }: TarEntry): boolean {
  return type === 'directory' && (storedName === './' || storedName === '.')
}

/** Of all PAX headers and long names before one member. */
const MAX_EXTENSION_BYTES = 64 * 1024
const END_BLOCKS = 2
/** Of eleven octal digits. */
const MAX_USTAR_SIZE = 0o77777777777
const ZEROS = Buffer.alloc(TAR_BLOCK_BYTES)
const EMPTY_SHA256 = hash('sha256', '', 'hex')

/** What extension headers announced of the next member. */
interface Announced {
  readonly pax?: PaxFields
  readonly name?: string
  readonly linkName?: string
}

/** A header block, or the data of an extension header, that is still incomplete. */
interface Collected {
  readonly bytes: Buffer
  filled: number
  /** Null for a header block. */
  readonly header: TarHeader | null
}

/**
 * Lists a tar that arrives in pieces. Of its members' data it keeps only the position and the digest. It is stricter
 * than tools are, so that no two of them can see different members: headers with correct checksums, complete members,
 * two blocks of zeros as the end and only zeros after it.
 */
export class TarListing {
  readonly #limits: ExtractionLimits
  #entries: TarEntry[] = []
  #count = 0
  #collected: Collected = headerBlock()
  #announced: Announced = {}
  /** Bytes of the extension headers since the last member, and of all. */
  #announcedBytes = 0
  #extensionBytes = 0
  #member: OpenMember | null = null
  /** Bytes of padding that are still to come. */
  #padding = 0
  /** Bytes of the pieces before the current one. */
  #passed = 0
  #bytes = 0
  #endBlocks = 0

  constructor(limits: ExtractionLimits) {
    this.#limits = limits
  }

  /**
   * Takes the next piece. Throws ArchiveError `invalid_archive` for a damaged or misleading tar, `unsafe_archive` for a
   * member of a type that is not extracted and for names that are not UTF-8, `archive_too_large` above a limit.
   */
  add(piece: Buffer): void {
    for (let at = 0; at < piece.length; ) at += this.#takeFrom(piece, at)
    this.#passed += piece.length
  }

  /** The members that are complete since the last call, in their order. */
  take(): TarEntry[] {
    const entries = this.#entries
    this.#entries = []
    return entries
  }

  /** Throws ArchiveError `invalid_archive` unless the archive is complete. */
  finish(): void {
    if (this.#endBlocks < END_BLOCKS || this.#collected.filled > 0) throw invalidArchive('its tar ends in the middle')
  }

  #takeFrom(piece: Buffer, at: number): number {
    if (this.#member !== null) return this.#digest(this.#member, piece.subarray(at))
    if (this.#padding > 0) return this.#skip(piece.length - at)
    return this.#collect(piece, at)
  }

  #digest(member: OpenMember, available: Buffer): number {
    const data = available.subarray(0, member.missing)
    member.missing -= data.length
    const sha256 = member.digest.add(data)
    if (sha256 !== null) this.#close(member, sha256)
    return data.length
  }

  #skip(available: number): number {
    const skipped = Math.min(this.#padding, available)
    this.#padding -= skipped
    return skipped
  }

  #collect(piece: Buffer, at: number): number {
    const collected = this.#collected
    const copied = piece.copy(collected.bytes, collected.filled, at)
    collected.filled += copied
    if (collected.filled === collected.bytes.length) this.#take(collected, this.#passed + at + copied)
    return copied
  }

  /** `end` is the position after the collected bytes. */
  #take({ bytes, header }: Collected, end: number): void {
    this.#collected = headerBlock()
    if (header !== null) this.#announce(header, bytes.subarray(0, header.size))
    else if (bytes.equals(ZEROS)) this.#end()
    else this.#open(parseTarHeader(bytes), end)
  }

  #end(): void {
    if (Object.keys(this.#announced).length > 0) throw invalidArchive('its tar ends after announcing a member')
    this.#endBlocks += 1
  }

  #open(header: TarHeader, end: number): void {
    if (this.#endBlocks > 0) throw invalidArchive('something follows the end of its tar')
    if (isExtension(header)) this.#collected = this.#extensionData(header)
    else this.#addMember(header, end)
  }

  #extensionData(header: TarHeader): Collected {
    this.#announcedBytes += header.size
    this.#extensionBytes += header.size
    if (header.size === 0 || this.#announcedBytes > MAX_EXTENSION_BYTES)
      throw invalidArchive(
        `its tar announces a member in ${this.#announcedBytes} bytes, of 1 to ${MAX_EXTENSION_BYTES}`,
      )
    verifyExtensionBytes(this.#extensionBytes, this.#limits)
    return { bytes: Buffer.allocUnsafe(padded(header.size)), filled: 0, header }
  }

  #announce({ type }: TarHeader, body: Buffer): void {
    if (type === 'pax global') {
      verifyGlobalPax(body)
      return
    }
    const key = type === 'pax' ? 'pax' : type === 'gnu name' ? 'name' : 'linkName'
    verifyAnnouncedOnce(this.#announced, key)
    const value = key === 'pax' ? parsePaxFields(body) : decodeLongName(body)
    this.#announced = { ...this.#announced, [key]: value }
  }

  #addMember(header: TarHeader, dataOffset: number): void {
    const entry = { ...toEntry(header, this.#announced), dataOffset }
    this.#announced = {}
    this.#announcedBytes = 0
    this.#bytes += entry.size
    this.#count += 1
    verifyEntryCount(this.#count, this.#limits)
    verifyExtractedBytes(this.#bytes, this.#limits)
    this.#padding = padded(entry.size) - entry.size
    const member = { entry, digest: new StreamedDigest(entry.size), missing: entry.size }
    if (entry.size > 0) this.#member = member
    else this.#close(member, EMPTY_SHA256)
  }

  #close({ entry }: OpenMember, sha256: string): void {
    this.#member = null
    this.#entries.push({ ...entry, sha256 })
  }
}

function headerBlock(): Collected {
  return { bytes: Buffer.allocUnsafe(TAR_BLOCK_BYTES), filled: 0, header: null }
}

function isExtension({ type }: TarHeader): boolean {
  return type === 'pax' || type === 'pax global' || type === 'gnu name' || type === 'gnu link name'
}

function padded(size: number): number {
  return Math.ceil(size / TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES
}

/** Tools differ on which of two announcements wins, so a member has each once, and either PAX or GNU ones. */
function verifyAnnouncedOnce(announced: Announced, key: keyof Announced): void {
  const isMixed = key === 'pax' ? Object.keys(announced).length > 0 : announced.pax !== undefined
  if (isMixed || announced[key] !== undefined) throw invalidArchive('a tar member is announced twice')
}

function decodeLongName(body: Buffer): string {
  const end = body.indexOf(0)
  const name = end === -1 ? body : body.subarray(0, end)
  if (body.subarray(name.length).some(byte => byte !== 0))
    throw invalidArchive('a long tar name continues after its end')
  return decodeEntryText(name, 'utf-8')
}

function toEntry(header: TarHeader, { pax = {}, name, linkName }: Announced): Omit<TarEntry, 'dataOffset' | 'sha256'> {
  const storedName = pax.path ?? name ?? decodeEntryText(header.name, 'utf-8')
  if (pax.specialKey !== undefined) throw unsafeEntry(storedName, 'is a sparse file or a part of one')
  const type = memberType(header.type, storedName)
  const size = pax.size ?? header.size
  if (type === 'symlink' && size > 0) throw unsafeEntry(storedName, 'is a symlink that contains data')
  if (!agrees(header.size, size)) throw invalidEntry(storedName, 'has another size in its PAX header than in its own')
  return {
    name: storedName.startsWith('./') ? storedName.slice(2) : storedName,
    storedName,
    type,
    size,
    packedSize: null,
    executable: header.executable,
    target: type === 'symlink' ? (pax.linkpath ?? linkName ?? decodeEntryText(header.linkName, 'utf-8')) : null,
  }
}

/** A header's own field is at zero or full where a PAX size does not fit into it. */
function agrees(own: number, size: number): boolean {
  return own === size || (size > MAX_USTAR_SIZE && (own === 0 || own === MAX_USTAR_SIZE))
}

function memberType(type: TarHeader['type'], name: string): ExtractableType {
  if (type === 'file' && name.endsWith('/'))
    throw unsafeEntry(
      name,
      "is a file with a directory's name, which some tools create as a directory and others as a file",
    )
  return requireExtractable(name, type)
}
