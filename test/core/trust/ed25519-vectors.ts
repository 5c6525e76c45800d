import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A test vector of RFC 8032, section 7.1. All values except the name are hex. */
interface Ed25519Vector {
  readonly name: string
  readonly publicKey: string
  readonly message: string
  readonly signature: string
}

const FILE = join(import.meta.dirname, '../../vectors/ed25519-rfc8032.json')

export const ED25519_VECTORS: readonly Ed25519Vector[] = JSON.parse(readFileSync(FILE, 'utf8'))
