import { timingSafeEqual } from 'node:crypto'
import { SignatureError } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'

declare const verified: unique symbol

/**
 * An untrusted artifact, from the hub or from the operator's file: bytes behind an open descriptor, and the digest that
 * was computed while they were written. The file no longer has a name, so no other job can replace it.
 */
export interface FetchedArtifact {
  /** An open file descriptor, readable; the owner closes it. */
  readonly fd: number
  /** Bytes. */
  readonly size: number
  /** Lowercase hex SHA-256 of the bytes. */
  readonly sha256: string
  /** Set if the names of the inputs are not those of the deploy action. */
  readonly signedFor?: SigningInputs
}

/** The inputs' names in messages: for the key that fetches the artifact, and for the secret that verifies it. */
export interface SigningInputs {
  /** Undefined if the artifact is the operator's file, for which no key was needed. */
  readonly apiKey: string | undefined
  readonly signingSecret: string
}

/** An artifact with a valid signature. Only `verifyHmacSignature` makes one; extraction takes nothing else. */
export type VerifiedArtifact = FetchedArtifact & { readonly [verified]: true }

const HEADER_FORM = /^hmac_sha256:([0-9a-fA-F]{64})$/
const FORM_WORDS = {
  hub: { subject: "The artifact's signature", remedy: 'ask the publisher to sign it again' },
  input: { subject: 'The input signature', remedy: 'correct the input' },
} as const

/**
 * Parses the 32 bytes of a signature `hmac_sha256:<64 hex digits>` (contract 2.1, "Artifact signature"). A hub sends it
 * as `X-Signature`, and an operator passes it as the input `signature`. Throws SignatureError `missing_signature` if
 * there is none, and `invalid_signature_format` if it has another form or algorithm.
 */
export function parseSignatureHeader(header: string | undefined, from: keyof typeof FORM_WORDS = 'hub'): Buffer {
  if (header === undefined || header.trim() === '') {
    throw new SignatureError(
      'missing_signature',
      'The hub sent the artifact without an X-Signature header, so the artifact was refused: ask the publisher to sign it.',
    )
  }
  const hex = HEADER_FORM.exec(header.trim())?.[1]
  if (hex === undefined) {
    const { subject, remedy } = FORM_WORDS[from]
    throw new SignatureError(
      'invalid_signature_format',
      `${subject} must read hmac_sha256:<64 hex digits>, but found "${cleanForeignText(header, 100)}", so the artifact was refused: ${remedy}.`,
    )
  }
  return Buffer.from(hex, 'hex')
}

/**
 * Vouches for an artifact if the HMAC in `header` equals `computedHmac`: the HMAC-SHA256 over the artifact's exact
 * bytes, computed with the signing secret (contract 4.3, rules 3 and 4). Compares the two in constant time. Throws
 * SignatureError `missing_signature`, `invalid_signature_format` or `signature_mismatch`.
 */
export function verifyHmacSignature(
  artifact: FetchedArtifact,
  computedHmac: Buffer,
  header: string | undefined,
): VerifiedArtifact {
  const expected = parseSignatureHeader(header)
  if (computedHmac.length !== expected.length || !timingSafeEqual(computedHmac, expected)) {
    const signedFor = artifact.signedFor ?? { apiKey: 'api-key', signingSecret: 'signing-secret' }
    throw new SignatureError(
      'signature_mismatch',
      `The artifact (${artifact.size} bytes, sha256 ${artifact.sha256}) is not signed with this ${signedFor.signingSecret}, so it was refused. ${remedyFor(signedFor)}`,
    )
  }
  return artifact as VerifiedArtifact
}

/**
 * Refuses an artifact that has a valid signature but is not the pinned one: throws SignatureError `digest_mismatch`.
 */
export function verifyPinnedDigest<Artifact extends { readonly sha256: string }>(
  artifact: Artifact,
  pinnedSha256: string,
): Artifact {
  if (artifact.sha256 !== pinnedSha256) {
    throw new SignatureError(
      'digest_mismatch',
      `artifact-sha256 pins ${pinnedSha256}, but the artifact has the SHA-256 ${artifact.sha256}, so it was refused. ` +
        'Find out where the different bytes come from, and pin their digest only if they are the bytes that you reviewed.',
    )
  }
  return artifact
}

function remedyFor({ apiKey }: SigningInputs): string {
  return apiKey === undefined
    ? 'Check that the signature was made with this secret and for this very file. If so, the bytes were changed afterwards.'
    : `Compare this secret with the one that the hub uses to sign artifacts for this ${apiKey}: on some hubs the publisher's, on others that of the key's owner. If the two are the same, the bytes were changed after they were signed.`
}
