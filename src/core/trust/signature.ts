import { createPublicKey, type KeyObject, timingSafeEqual } from 'node:crypto'
import { ConfigError, SignatureError } from '../errors.ts'
import { cleanForeignText } from '../text.ts'

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
interface SigningInputs {
  /** Undefined if the artifact is the operator's file, for which no key was needed. */
  readonly apiKey: string | undefined
  readonly signingSecret: string
  /** What looks wrong about the secret; see `strayEnds`. */
  readonly stray?: string | undefined
}

/**
 * Returns what a secret begins or ends with that was probably copied with it, as the end of a clause; undefined if there
 * is nothing.
 */
export function strayEnds(secret: string): string | undefined {
  if (/^\s|\s$/.test(secret)) return 'begins or ends with white space'
  return /^(["'`]).*\1$/s.test(secret) ? 'is in quotes' : undefined
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
    const { signingSecret, stray } = signedFor
    const hint =
      stray === undefined ? '' : ` This ${signingSecret} ${stray}, which is probably a mistake: correct it first.`
    throw new SignatureError(
      'signature_mismatch',
      `The artifact (${artifact.size} bytes, sha256 ${artifact.sha256}) is not signed with this ${signingSecret}, so it was refused.${hint} ${remedyFor(signedFor)}`,
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

declare const verifiedSeal: unique symbol

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
  readonly [verifiedSeal]: true
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

/** An Ed25519 public key that the operator trusts to sign artifacts. */
export interface SignerKey {
  /** The 32 bytes of the key. */
  readonly raw: Buffer
  /** The form of `raw` in which hubs and messages write the key. */
  readonly base64: string
  readonly key: KeyObject
}

const KEY_BYTES = 32
const HEX_FORM = /^[0-9a-fA-F]{64}$/
const PEM_BEGIN = '-----BEGIN PUBLIC KEY-----'
const PRIVATE_PEM_BEGIN = /^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----/
const PEM_END = '-----END PUBLIC KEY-----'
/** The bytes before the raw key in its SubjectPublicKeyInfo (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')

/** One key as it was written, and the line on which it begins. */
interface WrittenKey {
  readonly text: string
  readonly line: number
}

/**
 * Parses the keys of the input `signer-public-key`: at least one, each a line of base64 or hex of the raw 32 bytes, or
 * a PEM block (`BEGIN PUBLIC KEY`). Also refuses keys of small order, for which anyone can sign, and keys that are not
 * in canonical form. Throws ConfigError `invalid_input`, which names the line of a wrong key and quotes nothing from
 * it.
 */
export function parseSignerKeys(text: string): SignerKey[] {
  const keys = splitKeys(text).map(parseKey)
  if (keys.length === 0) throw invalidKeys('it is empty')
  return keys
}

/**
 * Finds the pinned key that a hub offers (contract 2.2, `signer_public_key`: base64 of the raw 32 bytes). Throws
 * SignatureError `untrusted_signer` if the offered key is not pinned or not in that form.
 */
export function findPinnedKey(keys: readonly SignerKey[], offered: string): SignerKey {
  const raw = decodeBase64(offered, KEY_BYTES)
  const pinned = keys.find(key => raw !== undefined && key.raw.equals(raw))
  if (pinned !== undefined) return pinned
  const [found, remedy] =
    raw === undefined
      ? ['a value that is not base64 of 32 bytes', 'Ask the publisher to correct the key on the hub.']
      : [
          `the key ${raw.toString('base64')}`,
          'Ask the publisher whether the key changed, and pin the new key only if they confirm the change.',
        ]
  throw new SignatureError(
    'untrusted_signer',
    `signer-public-key pins ${keys.map(key => key.base64).join(', ')}, but the hub says that the artifact is signed ` +
      `with ${found}: nothing was downloaded. ${remedy}`,
  )
}

function splitKeys(text: string): WrittenKey[] {
  const keys: WrittenKey[] = []
  const lines = text.split(/\r?\n/).map(line => line.trim())
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] as string
    if (line === '') continue
    const end = line === PEM_BEGIN ? lines.indexOf(PEM_END, at) : at
    if (end === -1) throw invalidKeys(`the PEM block that begins on line ${at + 1} has no END PUBLIC KEY`)
    keys.push({ text: lines.slice(at, end + 1).join('\n'), line: at + 1 })
    at = end
  }
  return keys
}

function parseKey({ text, line }: WrittenKey): SignerKey {
  if (PRIVATE_PEM_BEGIN.test(text)) throw privateKey(line)
  const raw = decodeKey(text)
  if (raw === undefined) throw invalidKeys(`line ${line} is none of these`)
  const problem = publicKeyProblem(raw)
  if (problem !== undefined) throw invalidKeys(`the key on line ${line} ${problem}`)
  const key = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, raw]), format: 'der', type: 'spki' })
  return { raw, base64: raw.toString('base64'), key }
}

function decodeKey(text: string): Buffer | undefined {
  if (text.startsWith(PEM_BEGIN)) return decodePem(text)
  return HEX_FORM.test(text) ? Buffer.from(text, 'hex') : decodeBase64(text, KEY_BYTES)
}

function decodePem(text: string): Buffer | undefined {
  const base64 = text.slice(PEM_BEGIN.length, -PEM_END.length).replaceAll('\n', '')
  const spki = decodeBase64(base64, SPKI_PREFIX.length + KEY_BYTES)
  return spki?.subarray(0, SPKI_PREFIX.length).equals(SPKI_PREFIX) ? spki.subarray(SPKI_PREFIX.length) : undefined
}

function invalidKeys(problem: string): ConfigError {
  return new ConfigError(
    'invalid_input',
    'signer-public-key must contain Ed25519 public keys, one per line as base64 or hex of the raw 32 bytes, or as PEM "BEGIN PUBLIC KEY", ' +
      `but ${problem}: ask the publisher for the key.`,
  )
}

function privateKey(line: number): ConfigError {
  return new ConfigError(
    'invalid_input',
    `signer-public-key must contain public keys, but a private key begins on line ${line}: anyone who has it can sign as the publisher. ` +
      'Replace it with its public key. If others could read the private key, ask the publisher to replace the key pair and to send only the new public key.',
  )
}

const FIELD_PRIME = 2n ** 255n - 19n
const SIGN_BIT = 2n ** 255n
const ORDER_8_Y = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n

/** The y of every point whose order divides 8; each y belongs to the points with x and -x. */
const SMALL_ORDER_Y: ReadonlySet<bigint> = new Set([0n, 1n, FIELD_PRIME - 1n, ORDER_8_Y, FIELD_PRIME - ORDER_8_Y])

/**
 * Returns why an Ed25519 public key of 32 raw bytes must not be trusted; undefined if it may be. Under a key of small
 * order, anyone can make signatures that many verifiers accept, including older Node versions. A key that is not in
 * canonical form is a second spelling of another key.
 */
function publicKeyProblem(raw: Buffer): string | undefined {
  const y = littleEndian(raw) % SIGN_BIT
  if (y >= FIELD_PRIME) return 'is not in the canonical form'
  if (SMALL_ORDER_Y.has(y)) return 'is of small order, so anyone can sign for it'
  return undefined
}

function littleEndian(bytes: Buffer): bigint {
  return BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`)
}

/**
 * Decodes a base64 text. Returns undefined unless the text encodes exactly `length` bytes in the one canonical form:
 * standard alphabet, padded, no white space, and no stray bits in the last character.
 */
export function decodeBase64(text: string, length: number): Buffer | undefined {
  if (text.length !== Math.ceil(length / 3) * 4) return undefined
  const bytes = Buffer.from(text, 'base64')
  return bytes.length === length && bytes.toString('base64') === text ? bytes : undefined
}
