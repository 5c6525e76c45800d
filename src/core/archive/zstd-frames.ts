import { ArchiveError } from '../errors.ts'
import { invalidArchive } from './archive-entry.ts'

/** A zstd frame that holds data, found by its own headers (RFC 8878, section 3.1) without decompressing anything. */
export interface ZstdFrame {
  /** Position of its first byte. */
  readonly start: number
  /** Position behind its last byte. */
  readonly end: number
  /** Bytes that its header declares to hold, unpacked; null where it does not say. */
  readonly contentBytes: number | null
  /** Bytes of the window that it declares: no more than what it unpacks to is ever used of it. */
  readonly windowBytes: number
}

/** log2 of the bytes of the largest window that a frame may declare: what `zstd --long` and its highest levels do. */
export const MAX_WINDOW_LOG = 27

const MAX_WINDOW_BYTES = 2 ** MAX_WINDOW_LOG
/** What may be used of a window, four times what levels up to 19 ask for: it is memory. */
const MAX_USED_WINDOW_BYTES = 32 * 1024 * 1024
/** Far beyond what any packer makes of the largest artifact; they keep hostile bytes from costing minutes. */
const MAX_FRAMES = 10_000
const MAX_BLOCKS = 1_000_000

const MAGIC = 0xfd2fb528
const SKIPPABLE_MAGIC = 0x184d2a50
const SKIPPABLE_MASK = 0xfffffff0
const MAGIC_BYTES = 4
const CHECKSUM_BYTES = 4
const BLOCK_HEADER_BYTES = 3
const MAX_BLOCK_BYTES = 128 * 1024
const BLOCK_TYPE = { raw: 0, rle: 1, compressed: 2, reserved: 3 } as const
const DICTIONARY_ID_BYTES = [0, 1, 2, 4] as const
/** The two-byte form begins where the one-byte form ends. */
const CONTENT_SIZE_OFFSET = 256

interface FrameHeader extends Omit<ZstdFrame, 'start'> {
  readonly hasChecksum: boolean
}

/**
 * The frames of a zstd stream, which fill it from the first byte to the last: decoders stop at the end of a frame without a
 * word about what follows. Skippable frames, which hold no data, are left out.
 * Throws ArchiveError `invalid_archive` for anything that is not a whole frame, and for a frame that needs a dictionary;
 * `archive_too_large` for a window of more than 128 MiB, 10,000 frames or 1,000,000 blocks.
 */
export function parseZstdFrames(bytes: Buffer): ZstdFrame[] {
  const frames: ZstdFrame[] = []
  const budget = { frames: MAX_FRAMES, blocks: MAX_BLOCKS }
  for (let at = 0; at < bytes.length; ) {
    if (--budget.frames < 0) throw tooLarge(`consists of more than ${MAX_FRAMES} frames`)
    const frame = isSkippable(bytes, at) ? null : parseFrame(bytes, at, budget)
    if (frame !== null) frames.push(frame)
    at = frame?.end ?? skippableEnd(bytes, at)
  }
  if (frames.length === 0) throw invalidArchive('it holds no zstd data')
  return frames
}

/** Throws ArchiveError `archive_too_large` when a frame, unpacked to so many bytes, uses more than 32 MiB of its window. */
export function verifyWindowUse({ windowBytes }: ZstdFrame, unpackedBytes: number): void {
  if (Math.min(windowBytes, unpackedBytes) <= MAX_USED_WINDOW_BYTES) return
  throw tooLarge(`uses more than ${MAX_USED_WINDOW_BYTES} bytes of a zstd window of ${windowBytes}`)
}

function isSkippable(bytes: Buffer, at: number): boolean {
  return (readUInt(bytes, at, MAGIC_BYTES) & SKIPPABLE_MASK) >>> 0 === SKIPPABLE_MAGIC
}

function skippableEnd(bytes: Buffer, at: number): number {
  const size = readUInt(bytes, at + MAGIC_BYTES, 4)
  return verifyWithin(bytes, at + MAGIC_BYTES + 4 + size)
}

function parseFrame(bytes: Buffer, start: number, budget: { blocks: number }): ZstdFrame {
  const { end: headerEnd, contentBytes, windowBytes, hasChecksum } = parseFrameHeader(bytes, start)
  let at = headerEnd
  for (let isLast = false; !isLast; ) {
    if (--budget.blocks < 0) throw tooLarge(`consists of more than ${MAX_BLOCKS} zstd blocks`)
    const block = readUInt(bytes, at, BLOCK_HEADER_BYTES)
    isLast = (block & 1) === 1
    at += BLOCK_HEADER_BYTES + blockBytes((block >>> 1) & 3, block >>> 3)
  }
  const end = verifyWithin(bytes, at + (hasChecksum ? CHECKSUM_BYTES : 0))
  return { start, end, contentBytes, windowBytes }
}

function parseFrameHeader(bytes: Buffer, start: number): FrameHeader {
  if (readUInt(bytes, start, MAGIC_BYTES) !== MAGIC) {
    throw invalidArchive(
      start === 0 ? 'it is not zstd data' : `its zstd data is followed by something else at byte ${start}`,
    )
  }
  const descriptor = readUInt(bytes, start + MAGIC_BYTES, 1)
  if ((descriptor & 0x08) !== 0) throw invalidArchive('a zstd frame sets a reserved bit')
  const isSingleSegment = (descriptor & 0x20) !== 0
  const windowAt = start + MAGIC_BYTES + 1
  const dictionaryAt = windowAt + (isSingleSegment ? 0 : 1)
  const sizeAt = dictionaryAt + verifyNoDictionary(bytes, dictionaryAt, descriptor & 3)
  const sizeBytes = contentSizeBytes(descriptor >>> 6, isSingleSegment)
  const contentBytes = sizeBytes === 0 ? null : readContentSize(bytes, sizeAt, sizeBytes)
  const windowBytes = contentBytes !== null && isSingleSegment ? contentBytes : readWindowBytes(bytes, windowAt)
  verifyWindow(windowBytes)
  return { end: sizeAt + sizeBytes, contentBytes, windowBytes, hasChecksum: (descriptor & 0x04) !== 0 }
}

/** Returns how many bytes the dictionary's id takes. */
function verifyNoDictionary(bytes: Buffer, at: number, flag: number): number {
  const length = DICTIONARY_ID_BYTES[flag] ?? 0
  if (length > 0 && readUInt(bytes, at, length) !== 0) throw invalidArchive('its zstd data needs a dictionary')
  return length
}

function contentSizeBytes(flag: number, isSingleSegment: boolean): number {
  return flag === 0 ? Number(isSingleSegment) : 2 ** flag
}

function readContentSize(bytes: Buffer, at: number, length: number): number {
  const low = readUInt(bytes, at, Math.min(length, 4))
  if (length === 2) return low + CONTENT_SIZE_OFFSET
  return length === 8 ? low + readUInt(bytes, at + 4, 4) * 2 ** 32 : low
}

function readWindowBytes(bytes: Buffer, at: number): number {
  const descriptor = readUInt(bytes, at, 1)
  const base = 2 ** (10 + (descriptor >>> 3))
  return base + (base / 8) * (descriptor & 7)
}

function verifyWindow(windowBytes: number): void {
  if (windowBytes <= MAX_WINDOW_BYTES) return
  throw tooLarge(`needs a zstd window of ${windowBytes} bytes, more than the ${MAX_WINDOW_BYTES} accepted`)
}

/** Bytes of a block in the stream, its header aside. */
function blockBytes(type: number, size: number): number {
  if (type === BLOCK_TYPE.reserved) throw invalidArchive('a zstd block is of a reserved type')
  if (size > MAX_BLOCK_BYTES) throw invalidArchive(`a zstd block is larger than ${MAX_BLOCK_BYTES} bytes`)
  return type === BLOCK_TYPE.rle ? 1 : size
}

function readUInt(bytes: Buffer, at: number, length: number): number {
  verifyWithin(bytes, at + length)
  return bytes.readUIntLE(at, length)
}

function verifyWithin(bytes: Buffer, end: number): number {
  if (end > bytes.length) throw invalidArchive('its zstd data ends in the middle')
  return end
}

function tooLarge(problem: string): ArchiveError {
  return new ArchiveError(
    'archive_too_large',
    `The archive ${problem}: nothing was installed; the publisher must pack it with a lower level, or --long=25, and in one piece.`,
  )
}
