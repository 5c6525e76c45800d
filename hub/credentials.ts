import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

const CREDENTIAL_BYTES = 32

/**
 * A new random credential of 256 bits: its label, then base64url. So much entropy cannot be guessed back from a
 * plain SHA-256, which is all that is ever stored of it.
 */
export function newCredential(label: string): string {
  return `${label}_${randomBytes(CREDENTIAL_BYTES).toString('base64url')}`
}

export function hashCredential(credential: string): string {
  return createHash('sha256').update(credential).digest('hex')
}

/** Whether the hash is that of the credential, in a time that does not depend on where they differ. */
export function matchesHash(credential: string, hash: string): boolean {
  const expected = Buffer.from(hash, 'hex')
  const actual = Buffer.from(hashCredential(credential), 'hex')
  return expected.length === actual.length && timingSafeEqual(expected, actual)
}
