import { invalidArchive } from './archive-entry.ts'
import {
  type ExtractionLimits,
  verifyEntryCount,
  verifyExtensionBytes,
  verifyExtractedBytes,
} from './archive-limits.ts'
import { parseTarHeader, TAR_BLOCK_BYTES, type TarHeader } from './tar-header.ts'
import { type Announced, announce, isExtension, type TarEntry, toEntry } from './tar-member.ts'
import { verifyGlobalPax } from './tar-pax.ts'

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
 * zeros; only more such blocks may follow.
 */
export class TarReader {
  readonly #limits: ExtractionLimits
  #count = 0
  #next: Next = HEADER_BLOCK
  /** The beginning of the next unit, if a piece ends in the middle of it. */
  #begun: Buffer[] = []
  #begunBytes = 0
  #announced: Announced = {}
  /** The number of bytes in the extension headers since the last member, and in all extension headers. */
  #announcedBytes = 0
  #extensionBytes = 0
  #member: OpenMember | null = null
  /** The number of padding bytes still to come. */
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
  }

  #open(header: TarHeader): void {
    if (this.#endBlocks > 0) throw invalidArchive('its tar is followed by other data')
    if (isExtension(header)) this.#next = this.#extensionData(header)
    else this.#openMember(header)
  }

  #extensionData(header: TarHeader): Next {
    this.#announcedBytes += header.size
    this.#extensionBytes += header.size
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
    else this.#announced = announce(this.#announced, header, body)
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
