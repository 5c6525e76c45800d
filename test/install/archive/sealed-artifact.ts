import { createCipheriv, createHash, generateKeyPairSync, sign } from 'node:crypto'
import { zstdCompressSync } from 'node:zlib'
import { type VerifiedSealedArtifact, verifySealedSignature } from '../../../src/core/trust/sealed-signature.ts'
import { parseSignerKeys, type SignerKey } from '../../../src/core/trust/signer-keys.ts'
import { checkEd25519 } from '../../../src/install/archive/ed25519-check.ts'
import { type OpenedArtifact, unseal } from '../../../src/install/archive/unseal.ts'

export const DEK = Buffer.alloc(32, 7)
const NONCE = Buffer.alloc(12, 9)

const { privateKey, publicKey } = generateKeyPairSync('ed25519')

/** The key that signs all of these artifacts. */
export const SIGNER = parseSignerKeys(publicKey.export({ format: 'pem', type: 'spki' }).toString()).at(0) as SignerKey

/** Nonce, ciphertext and tag. */
export function encrypt(plain: Buffer): Buffer {
  const cipher = createCipheriv('aes-256-gcm', DEK, NONCE, { authTagLength: 16 })
  return Buffer.concat([NONCE, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
}

/** Creates an artifact with a valid signature for any bytes. */
export function verifiedBytes(bytes: Buffer): Promise<VerifiedSealedArtifact> {
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  const signature = sign(null, bytes, privateKey).toString('base64')
  return verifySealedSignature({ bytes, sha256, signature }, SIGNER, checkEd25519)
}

/** Creates an opened artifact of these bytes. */
export async function openedZstd(zstd: Buffer): Promise<OpenedArtifact> {
  return unseal(await verifiedBytes(encrypt(zstd)), DEK)
}

export function openedTar(tar: Buffer): Promise<OpenedArtifact> {
  return openedZstd(zstdCompressSync(tar))
}
