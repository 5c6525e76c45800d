import { createCipheriv, createHash, generateKeyPairSync, sign } from 'node:crypto'
import { zstdCompressSync } from 'node:zlib'
import { type VerifiedSealedArtifact, verifySealedSignature } from '../../../src/core/trust/sealed-signature.ts'
import { parseSignerKeys, type SignerKey } from '../../../src/core/trust/signer-keys.ts'
import { checkEd25519 } from '../../../src/install/archive/ed25519-check.ts'
import { type OpenedArtifact, unseal } from '../../../src/install/archive/unseal.ts'

export const DEK = Buffer.alloc(32, 7)
const NONCE = Buffer.alloc(12, 9)

const { privateKey, publicKey } = generateKeyPairSync('ed25519')

/** The public key of the signer of all these artifacts. */
export const SIGNER = parseSignerKeys(publicKey.export({ format: 'pem', type: 'spki' }).toString()).at(0) as SignerKey

/** Returns the nonce, the ciphertext and the tag, concatenated. */
export function encrypt(plain: Buffer): Buffer {
  const cipher = createCipheriv('aes-256-gcm', DEK, NONCE, { authTagLength: 16 })
  return Buffer.concat([NONCE, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
}

/** Signs these bytes, and returns them as a verified artifact. */
export function verifiedBytes(bytes: Buffer): Promise<VerifiedSealedArtifact> {
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  const signature = sign(null, bytes, privateKey).toString('base64')
  return verifySealedSignature({ bytes, sha256, signature }, SIGNER, checkEd25519)
}

/** Encrypts and signs these bytes, and returns the opened artifact. */
export async function openedZstd(zstd: Buffer): Promise<OpenedArtifact> {
  return unseal(await verifiedBytes(encrypt(zstd)), DEK)
}

export function openedTar(tar: Buffer): Promise<OpenedArtifact> {
  return openedZstd(zstdCompressSync(tar))
}
