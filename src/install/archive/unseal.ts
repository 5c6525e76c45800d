import { createDecipheriv, type DecipherGCM } from 'node:crypto'
import { ArtifactError } from '../../core/errors.ts'
import { countInWords } from '../../core/quantities.ts'
import type { VerifiedSealedArtifact } from '../../core/trust/sealed-signature.ts'
import { TimeSlice } from '../files/time-slice.ts'

declare const opened: unique symbol

/**
 * A sealed artifact that was decrypted and authenticated by its tag: a zstd-compressed tar. Only `unseal` makes one.
 */
export interface OpenedArtifact {
  /** A view of the buffer that contained the sealed bytes. */
  readonly zstd: Buffer
  readonly [opened]: true
}

const DEK_BYTES = 32
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
export function discard({ zstd }: OpenedArtifact): void {
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
    const plain = decipher.update(bytes.subarray(at, at + PIECE_BYTES))
    plain.copy(bytes, at)
    // Node made this buffer for this call alone, and its bytes have been copied.
    ;(plain.buffer as ArrayBuffer).transfer(0)
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
