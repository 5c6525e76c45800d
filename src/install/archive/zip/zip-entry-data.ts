import { crc32, createInflateRaw, type InflateRaw, inflateRawSync } from 'node:zlib'
import { invalidEntry } from '../../../core/archive/archive-entry.ts'
import { errnoOf } from '../../../core/errors.ts'
import { countInWords } from '../../../core/quantities.ts'
import { type ReadWindow, WINDOW_BYTES } from '../read-window.ts'
import { unpack, unpackingAhead } from '../unpack-stream.ts'
import type { LocatedZipEntry, ZipPacking } from './zip-entries.ts'

/**
 * The size of one piece of a large entry. Half as much would cost more turns of the event loop, and twice as much would
 * not stay in the processor's cache.
 */
const PIECE_BYTES = 256 * 1024
/** Spare room, so that zlib sees the end of an entry without a second buffer. */
const SPARE_BYTES = 64

/** True if an entry is small enough, packed and unpacked, to be read at once through a window. */
export function isSmall({ size, packedSize }: ZipPacking): boolean {
  return size <= WINDOW_BYTES && packedSize <= WINDOW_BYTES
}

/**
 * Returns all bytes of a small entry. They may be a view of the window, so use them before the next view. Vouches that
 * they have the declared size and CRC, and that no packed bytes were left over. Throws ArchiveError `invalid_archive`.
 */
export function readSmallEntry(window: ReadWindow, entry: LocatedZipEntry): Buffer {
  const packed = window.look(entry.dataOffset, entry.packedSize, WINDOW_BYTES)
  const bytes = entry.method === 'stored' ? packed : inflateSmall(packed, entry)
  verifyOutcome(entry, bytes.length, crc32(bytes))
  return bytes
}

/**
 * Yields the bytes of an entry of any size in pieces, using bounded memory. A piece is valid until the next one is
 * requested. Vouches for the bytes only at the end. Throws ArchiveError `invalid_archive` if the data cannot be
 * unpacked, or as soon as there are more bytes than declared. At the end, also throws it for too few bytes, a different
 * CRC or packed bytes left over.
 */
export async function* readLargeEntry(window: ReadWindow, entry: LocatedZipEntry): AsyncGenerator<Buffer> {
  let size = 0
  let crc = 0
  for await (const piece of entry.method === 'stored' ? readPacked(window, entry) : inflateLarge(window, entry)) {
    size += piece.length
    if (size > entry.size)
      throw invalidEntry(entry.name, `unpacks to more bytes than the ${entry.size} that it declares`)
    crc = crc32(piece, crc)
    yield piece
  }
  verifyOutcome(entry, size, crc)
}

function inflateSmall(packed: Buffer, entry: LocatedZipEntry): Buffer {
  const options = { info: true, maxOutputLength: Math.max(entry.size, 1), chunkSize: entry.size + SPARE_BYTES }
  try {
    // With `info`, the answer is not the Buffer that the type declares.
    const { buffer, engine } = inflateRawSync(packed, options) as unknown as { buffer: Buffer; engine: InflateRaw }
    verifyUsedUp(entry, engine.bytesWritten)
    return buffer
  } catch (error) {
    throw toEntryError(error, entry)
  }
}

async function* inflateLarge(window: ReadWindow, entry: LocatedZipEntry): AsyncGenerator<Buffer> {
  const inflate = createInflateRaw(unpackingAhead(PIECE_BYTES))
  try {
    yield* unpack(inflate, readPacked(window, entry))
    verifyUsedUp(entry, inflate.bytesWritten)
  } catch (error) {
    throw toEntryError(error, entry)
  }
}

/** Yields the packed bytes in two alternating buffers. */
function* readPacked(window: ReadWindow, entry: LocatedZipEntry): Generator<Buffer> {
  let [next, other] = [Buffer.allocUnsafeSlow(PIECE_BYTES), Buffer.allocUnsafeSlow(PIECE_BYTES)]
  for (let at = 0; at < entry.packedSize; at += PIECE_BYTES) {
    const piece = next.subarray(0, entry.packedSize - at)
    window.read(entry.dataOffset + at, piece)
    yield piece
    ;[next, other] = [other, next]
  }
}

function verifyUsedUp(entry: LocatedZipEntry, used: number): void {
  if (used !== entry.packedSize) throw invalidEntry(entry.name, 'has bytes left over after its packed data')
}

function verifyOutcome(entry: LocatedZipEntry, size: number, crc: number): void {
  if (size !== entry.size)
    throw invalidEntry(entry.name, `unpacks to ${countInWords(size, 'byte')}, but declares ${entry.size}`)
  if ((crc | 0) !== entry.crc) throw invalidEntry(entry.name, 'does not have the CRC that the directory gives')
}

function toEntryError(error: unknown, entry: LocatedZipEntry): unknown {
  const code = errnoOf(error) ?? ''
  if (code === 'ERR_BUFFER_TOO_LARGE') {
    return invalidEntry(entry.name, `unpacks to more bytes than the ${entry.size} that it declares`, error)
  }
  return code.startsWith('Z_') ? invalidEntry(entry.name, `cannot be unpacked (${code})`, error) : error
}
