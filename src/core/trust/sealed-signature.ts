import type { KeyObject } from 'node:crypto'
import { SignatureError } from '../errors.ts'
import type { SignerKey } from './signer-keys.ts'
import { decodeBase64 } from './strict-base64.ts'

declare const verified: unique symbol

/**
 * A sealed artifact as the hub served it: untrusted. The buffer is the only copy of the artifact in memory, and
 * contains nothing else.
 */
export interface SealedArtifact {
  readonly bytes: Buffer
  /** Lowercase hex SHA-256 of the bytes. */
  readonly sha256: string
  /** The signature of the bytes as the hub gave it (contract 2.2, base64); undefined if the hub gave none. */
  readonly signature: string | undefined
}

/** A sealed artifact whose signature is valid. Only `verifySealedSignature` makes one; `unseal` takes nothing else. */
export type VerifiedSealedArtifact = Omit<SealedArtifact, 'signature'> & {
  /** Bytes. */
  readonly size: number
  readonly [verified]: true
}

/** Bytes, and 64 bytes that are claimed to be the key's Ed25519 signature over all of `bytes`. */
export interface SignedBytes {
  readonly bytes: Buffer
  readonly key: KeyObject
  readonly signature: Buffer
}

/**
 * Resolves to the bytes if the signature is the key's, otherwise to undefined. The buffer that was passed may be empty
 * afterwards.
 */
export type Ed25519Check = (signed: SignedBytes) => Promise<Buffer | undefined>

const SIGNATURE_BYTES = 64

/** Bytes of the largest artifact whose signature can be checked: OpenSSL accepts no more at once. */
export const MAX_SEALED_BYTES = 2 ** 31 - 1

/**
 * Parses the 64 bytes of an artifact descriptor's `signature` (contract 2.2, base64). Throws SignatureError
 * `missing_signature` if there is none, and `invalid_signature_format` if it has another form.
 */
export function parseSealedSignature(signature: string | undefined): Buffer {
  if (signature === undefined || signature === '') {
    throw new SignatureError(
      'missing_signature',
      'The hub sent no signature for the artifact, so nothing was installed: ask the publisher to sign it.',
    )
  }
  const bytes = decodeBase64(signature, SIGNATURE_BYTES)
  if (bytes !== undefined) return bytes
  throw new SignatureError(
    'invalid_signature_format',
    `The artifact's signature must be base64 of ${SIGNATURE_BYTES} bytes (Ed25519), but found ${signature.length} characters in another form: ` +
      'nothing was installed; ask the publisher to sign the artifact again.',
  )
}

/**
 * Vouches for a sealed artifact if `check` finds that its Ed25519 signature is the signer's. The signature covers the
 * artifact's exact bytes, including nonce and tag (contract 5.2, rule 4). Afterwards, use only the returned bytes.
 * Throws SignatureError `missing_signature`, `invalid_signature_format` or `signature_mismatch`.
 */
export async function verifySealedSignature(
  artifact: SealedArtifact,
  signer: SignerKey,
  check: Ed25519Check,
): Promise<VerifiedSealedArtifact> {
  const { sha256 } = artifact
  const size = artifact.bytes.length
  const signature = parseSealedSignature(artifact.signature)
  const bytes = await check({ bytes: artifact.bytes, key: signer.key, signature })
  if (bytes === undefined) {
    throw new SignatureError(
      'signature_mismatch',
      `The artifact (${size} bytes, sha256 ${sha256}) is not signed with the pinned key ${signer.base64}: ` +
        'nothing was installed and no key was requested. Either the publisher signed it with another key, or somebody has since changed the bytes or the signature: ask the publisher.',
    )
  }
  return { bytes, sha256, size } as VerifiedSealedArtifact
}
