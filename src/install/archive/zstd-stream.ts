import { constants, createZstdDecompress } from 'node:zlib'
import { invalidArchive } from '../../core/archive/archive-entry.ts'
import type { ExtractionLimits } from '../../core/archive/archive-limits.ts'
import { MAX_WINDOW_LOG, parseZstdFrames, verifyWindowUse, type ZstdFrame } from '../../core/archive/zstd-frames.ts'
import { ArchiveError, errnoOf } from '../../core/errors.ts'
import { unpack, unpackingAhead } from './unpack-stream.ts'
import type { OpenedArtifact } from './unseal.ts'

/**
 * The size of the decoder's input and output chunks. With 16 KiB, Node's default, decoding takes five times as long.
 */
const PIECE_BYTES = 1024 * 1024
/**
 * The number of bytes that a tar may need in addition to those of its files: headers, long names and padding for each
 * entry, and zeros at the end.
 */
const TAR_BYTES_PER_ENTRY = 4096
const TAR_TRAILER_BYTES = 1024 * 1024

/**
 * Yields the tar in an opened artifact in pieces of up to 1 MiB. A piece is valid until the next one is requested. Can
 * be called more than once for an artifact. Finds all frames by their headers before it unpacks the first. Each frame
 * must be used up and yield as many bytes as it declares. Throws ArchiveError `invalid_archive`. Throws
 * `archive_too_large` as `parseZstdFrames` and `verifyWindowUse` do, or as soon as the tar exceeds the limits plus a
 * tar's own overhead.
 */
export async function* unpackZstd({ zstd }: OpenedArtifact, limits: ExtractionLimits): AsyncGenerator<Buffer> {
  const frames = parseZstdFrames(zstd)
  verifyUnpackedBytes(sumOf(frames), limits)
  let bytes = 0
  for (const frame of frames) {
    for await (const piece of unpackFrame(zstd, frame)) {
      bytes += piece.length
      verifyUnpackedBytes(bytes, limits)
      yield piece
    }
  }
}

/**
 * Returns the size in bytes that the frames of an opened artifact declare for its tar; undefined if a frame declares
 * none. Unpacking verifies this size. Throws ArchiveError `invalid_archive` or `archive_too_large`.
 */
export function declaredBytes({ zstd }: OpenedArtifact): number | undefined {
  const frames = parseZstdFrames(zstd)
  return frames.some(({ contentBytes }) => contentBytes === null) ? undefined : sumOf(frames)
}

/** A frame that does not declare its size counts as 0 bytes. */
function sumOf(frames: readonly ZstdFrame[]): number {
  return frames.reduce((sum, { contentBytes }) => sum + (contentBytes ?? 0), 0)
}

function verifyUnpackedBytes(bytes: number, { maxExtractedBytes, maxEntries }: ExtractionLimits): void {
  const most = maxExtractedBytes + maxEntries * TAR_BYTES_PER_ENTRY + TAR_TRAILER_BYTES
  if (bytes <= most) return
  throw new ArchiveError(
    'archive_too_large',
    `The archive unpacks to more than the ${most} bytes that max-extracted-bytes (${maxExtractedBytes}) and max-entries allow. ` +
      'Nothing was installed: raise the input max-extracted-bytes if the artifact is meant to be that large.',
  )
}

async function* unpackFrame(zstd: Buffer, frame: ZstdFrame): AsyncGenerator<Buffer> {
  const params = { [constants.ZSTD_d_windowLogMax]: MAX_WINDOW_LOG }
  const decoder = createZstdDecompress({ ...unpackingAhead(PIECE_BYTES), params })
  let bytes = 0
  try {
    for await (const piece of unpack(decoder, cut(zstd.subarray(frame.start, frame.end)))) {
      bytes += piece.length
      verifyWindowUse(frame, bytes)
      yield piece
    }
  } catch (error) {
    throw toArchiveError(error)
  }
  // The decoder verifies size and checksum, if the frame has them, but does not say when it stops early.
  if (decoder.bytesWritten !== frame.end - frame.start) throw invalidArchive('a zstd frame ends before its last block')
}

function* cut(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES)
}

function toArchiveError(error: unknown): unknown {
  const code = errnoOf(error) ?? ''
  return /^(Z|ZSTD)_/.test(code) ? invalidArchive(`its zstd data cannot be unpacked (${code})`) : error
}
