import { createPublicKey, type KeyObject } from 'node:crypto'
import { ConfigError, SignatureError } from '../errors.ts'
import { publicKeyProblem } from './ed25519-key-check.ts'
import { decodeBase64 } from './strict-base64.ts'

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
