import { ArchiveError } from '../errors.ts'
import { invalidArchive } from './planned-tree.ts'

/** A zstd frame with data, found by its own headers (RFC 8878, section 3.1) without decompressing anything. */
export interface ZstdFrame {
  /** The position of its first byte. */
  readonly start: number
  /** The position after its last byte. */
  readonly end: number
  /** The number of bytes that it unpacks to, according to its header; null if the header does not say. */
  readonly contentBytes: number | null
  /**
   * The size of the window that the frame declares. A decoder uses at most as much of the window as the frame unpacks
   * to.
   */
  readonly windowBytes: number
}

/** log2 of the largest window, in bytes, that a frame may declare; `zstd --long` and the highest levels use it. */
export const MAX_WINDOW_LOG = 27

const MAX_WINDOW_BYTES = 2 ** MAX_WINDOW_LOG
/** The used part of a window takes memory: this limit is four times the memory that levels up to 19 need. */
const MAX_USED_WINDOW_BYTES = 32 * 1024 * 1024
/** Far more than any packer produces. Each frame takes a decoder of its own, which costs almost a millisecond. */
const FREE_FRAMES = 100
const BYTES_PER_FRAME = 64 * 1024
const MAX_BLOCKS = 1_000_000

const MAGIC = 0xfd2fb528
const SKIPPABLE_MAGIC = 0x184d2a50
const SKIPPABLE_MASK = 0xfffffff0
const MAGIC_BYTES = 4
const SKIPPABLE_SIZE_BYTES = 4
const CHECKSUM_BYTES = 4
const BLOCK_HEADER_BYTES = 3
const MAX_BLOCK_BYTES = 128 * 1024
const BLOCK_TYPE = { raw: 0, rle: 1, compressed: 2, reserved: 3 } as const
const DICTIONARY_ID_BYTES = [0, 1, 2, 4] as const
/** The two-byte form of a content size stores the size minus this number. */
const CONTENT_SIZE_OFFSET = 256

interface FrameHeader extends Pick<ZstdFrame, 'contentBytes' | 'windowBytes'> {
  readonly hasChecksum: boolean
}

/**
 * Finds the frames of a zstd stream. They must fill the stream from the first byte to the last, because decoders stop
 * at the end of a frame without reporting what follows. Omits skippable frames, which contain no data. Throws
 * ArchiveError `invalid_archive` for anything but complete frames, for a stream without data, and for a frame that
 * needs a dictionary. Throws `archive_too_large` for a window of more than 128 MiB, for more frames than 100 and one for
 * each 64 KiB, and for more than 1,000,000 blocks.
 */
export function parseZstdFrames(bytes: Buffer): ZstdFrame[] {
  const stream = new FrameStream(bytes)
  const frames: ZstdFrame[] = []
  const most = FREE_FRAMES + Math.floor(bytes.length / BYTES_PER_FRAME)
  for (let count = 1; !stream.isAtEnd(); count++) {
    if (count > most) throw tooLarge(`consists of more than ${most} zstd frames`, IN_ONE_PIECE)
    const frame = stream.next()
    if (frame !== null) frames.push(frame)
  }
  if (frames.length === 0) throw invalidArchive('it contains no zstd data')
  return frames
}

/**
 * Throws ArchiveError `archive_too_large` if a frame that unpacks to this many bytes uses more than 32 MiB of its
 * window.
 */
export function verifyWindowUse({ windowBytes }: ZstdFrame, unpackedBytes: number): void {
  if (Math.min(windowBytes, unpackedBytes) <= MAX_USED_WINDOW_BYTES) return
  throw tooLarge(
    `uses more than ${MAX_USED_WINDOW_BYTES} bytes of a zstd window of ${windowBytes} bytes`,
    WITH_LESS_MEMORY,
  )
}

class FrameStream {
  readonly #bytes: Buffer
  #at = 0
  #blocks = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  isAtEnd(): boolean {
    return this.#at === this.#bytes.length
  }

  /** Returns null for a skippable frame. */
  next(): ZstdFrame | null {
    const start = this.#at
    const magic = this.#readUInt(MAGIC_BYTES)
    if ((magic & SKIPPABLE_MASK) >>> 0 === SKIPPABLE_MAGIC) {
      this.#skip(this.#readUInt(SKIPPABLE_SIZE_BYTES))
      return null
    }
    if (magic !== MAGIC) throw invalidArchive(strangerProblem(start))
    const { contentBytes, windowBytes, hasChecksum } = this.#readHeader()
    this.#skipBlocks()
    if (hasChecksum) this.#skip(CHECKSUM_BYTES)
    return { start, end: this.#at, contentBytes, windowBytes }
  }

  #readHeader(): FrameHeader {
    const descriptor = this.#readUInt(1)
    if ((descriptor & 0x08) !== 0) throw invalidArchive('a zstd frame sets a reserved bit')
    const isSingleSegment = (descriptor & 0x20) !== 0
    const declaredWindow = isSingleSegment ? null : windowSize(this.#readUInt(1))
    this.#skipDictionaryId(descriptor & 3)
    const contentBytes = this.#readContentSize(contentSizeBytes(descriptor >>> 6, isSingleSegment))
    // A single segment always declares its content size, which is also its window.
    const windowBytes = declaredWindow ?? contentBytes ?? 0
    verifyWindow(windowBytes)
    return { contentBytes, windowBytes, hasChecksum: (descriptor & 0x04) !== 0 }
  }

  #skipDictionaryId(flag: number): void {
    const length = DICTIONARY_ID_BYTES[flag] ?? 0
    if (length > 0 && this.#readUInt(length) !== 0) throw invalidArchive('its zstd data needs a dictionary')
  }

  #readContentSize(length: number): number | null {
    if (length === 0) return null
    const low = this.#readUInt(Math.min(length, 4))
    if (length === 2) return low + CONTENT_SIZE_OFFSET
    return length === 8 ? low + this.#readUInt(4) * 2 ** 32 : low
  }

  #skipBlocks(): void {
    for (let isLast = false; !isLast; ) {
      this.#blocks += 1
      if (this.#blocks > MAX_BLOCKS) throw tooLarge(`consists of more than ${MAX_BLOCKS} zstd blocks`, IN_ONE_PIECE)
      const header = this.#readUInt(BLOCK_HEADER_BYTES)
      isLast = (header & 1) === 1
      this.#skip(blockBytes((header >>> 1) & 3, header >>> 3))
    }
  }

  #readUInt(length: number): number {
    const at = this.#at
    this.#skip(length)
    return this.#bytes.readUIntLE(at, length)
  }

  #skip(length: number): void {
    this.#at += length
    if (this.#at > this.#bytes.length) throw invalidArchive('its zstd data is incomplete')
  }
}

function strangerProblem(start: number): string {
  return start === 0 ? 'it is not zstd data' : `its zstd data is followed by other data at byte ${start}`
}

function contentSizeBytes(flag: number, isSingleSegment: boolean): number {
  return flag === 0 ? Number(isSingleSegment) : 2 ** flag
}

function windowSize(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >>> 3))
  return base + (base / 8) * (descriptor & 7)
}

function verifyWindow(windowBytes: number): void {
  if (windowBytes <= MAX_WINDOW_BYTES) return
  throw tooLarge(
    `needs a zstd window of ${windowBytes} bytes, more than the ${MAX_WINDOW_BYTES} accepted`,
    WITH_LESS_MEMORY,
  )
}

/** Returns the number of bytes that follow the header of a block in the stream. */
function blockBytes(type: number, size: number): number {
  if (type === BLOCK_TYPE.reserved) throw invalidArchive('a zstd block has a reserved type')
  if (size > MAX_BLOCK_BYTES) throw invalidArchive(`a zstd block is larger than ${MAX_BLOCK_BYTES} bytes`)
  return type === BLOCK_TYPE.rle ? 1 : size
}

const IN_ONE_PIECE = 'in one piece'
const WITH_LESS_MEMORY = 'at a lower level, or with --long=25'

function tooLarge(problem: string, how: string): ArchiveError {
  return new ArchiveError(
    'archive_too_large',
    `The archive ${problem}, so it was refused: the publisher must pack it again ${how}.`,
  )
}
