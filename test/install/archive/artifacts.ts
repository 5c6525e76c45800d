import { createCipheriv, createHash, createHmac, generateKeyPairSync, sign } from 'node:crypto'
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { zstdCompressSync } from 'node:zlib'
import {
  parseSignerKeys,
  type SignerKey,
  type VerifiedArtifact,
  type VerifiedSealedArtifact,
  verifyHmacSignature,
  verifySealedSignature,
} from '../../../src/core/trust/signature.ts'
import { checkEd25519, type OpenedArtifact, unseal } from '../../../src/install/archive/sealed.ts'
import { listTar, type TarRequest } from '../../../src/install/archive/tar.ts'
import type { Extraction } from '../../../src/install/archive/writer.ts'
import { listZip } from '../../../src/install/archive/zip-extract.ts'
import type { ExtractedFile, ExtractedTree } from '../../../src/install/files/extracted-tree.ts'

export const DEK = Buffer.alloc(32, 7)
const NONCE = Buffer.alloc(12, 9)

const { privateKey, publicKey } = generateKeyPairSync('ed25519')

/** The public key of the signer of all these artifacts. */
const SIGNER = parseSignerKeys(publicKey.export({ format: 'pem', type: 'spki' }).toString()).at(0) as SignerKey

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

/** Runs `use` in a temporary directory, and removes the directory afterwards. */
export async function inTemporaryDirectory<Result>(use: (directory: string) => Promise<Result>): Promise<Result> {
  const directory = mkdtempSync(join(tmpdir(), 'archive-test-'))
  try {
    return await use(directory)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Runs `use` with a verified artifact of these bytes, in a file without a name, as after a download. */
export async function withVerifiedArtifact<Result>(
  bytes: Uint8Array,
  directory: string,
  use: (artifact: VerifiedArtifact) => Promise<Result>,
): Promise<Result> {
  const path = join(directory, 'artifact')
  writeFileSync(path, bytes)
  const fd = openSync(path, 'r')
  rmSync(path)
  try {
    return await use(verifySigned(fd, bytes))
  } finally {
    closeSync(fd)
  }
}

function verifySigned(fd: number, bytes: Uint8Array): VerifiedArtifact {
  const hmac = createHmac('sha256', 'test secret').update(bytes).digest()
  const fetched = { fd, size: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') }
  return verifyHmacSignature(fetched, hmac, `hmac_sha256:${hmac.toString('hex')}`)
}

/** Returns a tree without its files' inodes and times, which differ from extraction to extraction. */
export function withoutStamps({ files, ...tree }: ExtractedTree): ExtractedTree {
  return { ...tree, files: files.map(({ stamp: _, owner: __, ...file }): ExtractedFile => file) }
}

/** Lists an opened tar, and writes all of it. */
export async function extractTar(opened: OpenedArtifact, request: TarRequest): Promise<ExtractedTree> {
  return await (await listTar(opened, request)).write()
}

/** Lists a verified ZIP, and writes all of it. */
export async function extractZip(artifact: VerifiedArtifact, extraction: Extraction): Promise<ExtractedTree> {
  return await (await listZip(artifact, extraction)).write()
}
