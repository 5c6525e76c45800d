import { createHash, randomBytes, randomInt, timingSafeEqual } from 'node:crypto'

const CREDENTIAL_BYTES = 32
const ALPHANUMERICS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/**
 * Creates a random credential of 256 bits: the label, then base64url. A plain SHA-256 of the credential is safe to
 * store, because nobody can guess so many bits.
 */
export function newCredential(label: string): string {
  return `${label}_${randomBytes(CREDENTIAL_BYTES).toString('base64url')}`
}

/** Random letters and digits, for an id that need not be secret. */
export function randomAlphanumerics(length: number): string {
  return Array.from({ length }, () => ALPHANUMERICS.charAt(randomInt(ALPHANUMERICS.length))).join('')
}

export function hashCredential(credential: string): string {
  return createHash('sha256').update(credential).digest('hex')
}

/** Compares a credential with a stored hash in constant time. */
export function matchesHash(credential: string, hash: string): boolean {
  const expected = Buffer.from(hash, 'hex')
  const actual = Buffer.from(hashCredential(credential), 'hex')
  return expected.length === actual.length && timingSafeEqual(expected, actual)
}
