import { createDecipheriv, type DecipherGCM, verify } from 'node:crypto'
import { constants, createZstdDecompress } from 'node:zlib'
import { invalidArchive } from '../../core/archive/planned-tree.ts'
import type { ExtractionLimits } from '../../core/archive/policy.ts'
import { MAX_WINDOW_LOG, parseZstdFrames, verifyWindowUse, type ZstdFrame } from '../../core/archive/zstd-frames.ts'
import { ArchiveError, ArtifactError, errnoOf } from '../../core/errors.ts'
import { countInWords } from '../../core/text.ts'
import type { SignedBytes, VerifiedSealedArtifact } from '../../core/trust/signature.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { unpack } from './pieces.ts'

declare const opened: unique symbol

/**
 * A sealed artifact that was decrypted and authenticated by its tag: a zstd-compressed tar. Only `unseal` makes one.
 */
export interface OpenedArtifact {
  /** A view of the buffer that contained the sealed bytes. */
  readonly zstd: Buffer
  readonly [opened]: true
}

export const DEK_BYTES = 32
const NONCE_BYTES = 12
const TAG_BYTES = 16
const PIECE_BYTES = 1024 * 1024

/**
 * Decrypts a sealed artifact (AES-256-GCM: a 12-byte nonce, the ciphertext, a 16-byte tag; no associated data) in its
 * own buffer. The sealed bytes are gone afterwards, so call this function once for each artifact. Returns only after
 * the tag has been verified. If the function throws, it has overwritten the buffer with zeros. Works in slices, between
 * which signals are handled.
 * Throws ArtifactError `decryption_failed` for a `dek` that is not 32 bytes long or belongs to another artifact, and
 * for a file that is too short. Throws the signal's reason once the signal is aborted.
 */
export async function unseal(
  artifact: VerifiedSealedArtifact,
  dek: Buffer,
  signal?: AbortSignal,
): Promise<OpenedArtifact> {
  try {
    signal?.throwIfAborted()
    const zstd = ciphertextOf(artifact)
    await decryptInPlace(zstd, createDecipher(artifact.bytes, dek), new TimeSlice(signal))
    return { zstd } as OpenedArtifact
  } catch (error) {
    artifact.bytes.fill(0)
    throw error
  }
}

/**
 * Frees the memory of an opened artifact, which is as large as the sealed file. Nothing may read the artifact
 * afterwards.
 */
export function freeArtifact({ zstd }: OpenedArtifact): void {
  ;(zstd.buffer as ArrayBuffer).transfer(0)
}

function ciphertextOf({ bytes, size }: VerifiedSealedArtifact): Buffer {
  if (size > NONCE_BYTES + TAG_BYTES) return bytes.subarray(NONCE_BYTES, size - TAG_BYTES)
  throw decryptionFailed(`it is only ${countInWords(size, 'byte')} long, too short for any content`)
}

function createDecipher(sealed: Buffer, dek: Buffer): DecipherGCM {
  if (dek.length !== DEK_BYTES) {
    throw decryptionFailed(`the hub released a key of ${countInWords(dek.length, 'byte')} instead of ${DEK_BYTES}`)
  }
  // Without authTagLength, Node would accept a tag cut to 4 bytes.
  const decipher = createDecipheriv('aes-256-gcm', dek, sealed.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
  return decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
}

async function decryptInPlace(bytes: Buffer, decipher: DecipherGCM, slice: TimeSlice): Promise<void> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
    decipher.update(bytes.subarray(at, at + PIECE_BYTES)).copy(bytes, at)
    if (slice.isOver()) await slice.giveBack()
  }
  verifyTag(decipher)
}

function verifyTag(decipher: DecipherGCM): void {
  try {
    decipher.final()
  } catch (error) {
    throw decryptionFailed('the key that the hub released does not open it', error)
  }
}

function decryptionFailed(problem: string, cause?: unknown): ArtifactError {
  return new ArtifactError(
    'decryption_failed',
    `The signed artifact could not be decrypted: ${problem}. Nothing was installed. The publisher must publish this version again.`,
    { cause },
  )
}

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
  const decoder = createZstdDecompress({ chunkSize: PIECE_BYTES, params })
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

/** Checking this many bytes takes about as long as starting a thread. */
const MAX_BYTES_AT_ONCE = 8 * 1024 * 1024

const IN_A_THREAD = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { verify } = require('node:crypto')
  const { bytes, key, signature } = workerData
  parentPort.postMessage(verify(null, bytes, key, signature) ? bytes : undefined, [bytes.buffer])
`

/**
 * Returns the bytes if their Ed25519 signature is valid, otherwise undefined. Large artifacts are checked in a separate
 * thread, so that signals are handled meanwhile. A large artifact must be alone in its buffer, because the buffer is
 * moved to the thread and back, which leaves the given Buffer empty. (Node's own asynchronous form would copy the bytes
 * instead.) Throws the signal's reason once the signal is aborted.
 */
export async function checkEd25519(signed: SignedBytes, signal?: AbortSignal): Promise<Buffer | undefined> {
  signal?.throwIfAborted()
  const { bytes, key, signature } = signed
  if (bytes.length > MAX_BYTES_AT_ONCE) return await checkInThread(signed, signal)
  return verify(null, bytes, key, signature) ? bytes : undefined
}

async function checkInThread(signed: SignedBytes, signal?: AbortSignal): Promise<Buffer | undefined> {
  // Loaded on demand: most runs check nothing this large.
  const { Worker } = await import('node:worker_threads')
  signal?.throwIfAborted()
  const transferList = [signed.bytes.buffer as ArrayBuffer]
  const worker = new Worker(IN_A_THREAD, { eval: true, workerData: signed, transferList, env: {} })
  const stop = (): void => void worker.terminate()
  signal?.addEventListener('abort', stop)
  try {
    return await new Promise<Buffer | undefined>((resolve, reject) => {
      worker.once('message', bytes => resolve(bytes instanceof Uint8Array ? asBuffer(bytes) : undefined))
      worker.once('error', reject)
      worker.once('exit', code =>
        reject(signal?.reason ?? new Error(`The signature check ended with exit code ${code}.`)),
      )
    })
  } finally {
    signal?.removeEventListener('abort', stop)
  }
}

function asBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength)
}
