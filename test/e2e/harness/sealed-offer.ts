import { createCipheriv, hash, type KeyObject, randomBytes, sign } from 'node:crypto'
import { zstdCompressSync } from 'node:zlib'
import { treeDigest } from '../../../src/core/trust/tree-digest.ts'
import { buildTar, file, type TarItem } from '../../archives/tar-builder.ts'
import { PROJECT_ID, projectFiles } from './project-stage.ts'

export const OFFERED_VERSION = '2.0.0'

/** The offer of a hub: a sealed file, its signature and its key. */
export interface SealedOffer {
  bytes: Buffer
  /** In base64. */
  signature: string
  dek: Buffer
}

/** Seals any bytes under a new key: 12 bytes of nonce, AES-256-GCM, 16 bytes of tag; Ed25519 signs all of it. */
export function sealBytes(plain: Buffer, signingKey: KeyObject): SealedOffer {
  const [dek, nonce] = [randomBytes(32), randomBytes(12)]
  const cipher = createCipheriv('aes-256-gcm', dek, nonce, { authTagLength: 16 })
  const bytes = Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
  return { dek, ...signed(bytes, signingKey) }
}

export function sealTar(tar: Buffer, signingKey: KeyObject): SealedOffer {
  return sealBytes(zstdCompressSync(tar), signingKey)
}

export function signed(bytes: Buffer, signingKey: KeyObject): Pick<SealedOffer, 'bytes' | 'signature'> {
  return { bytes, signature: sign(null, bytes, signingKey).toString('base64') }
}

export interface ProjectChanges {
  files?: Record<string, string>
  /** Fields that replace those of the manifest; undefined removes a field. */
  manifest?: Record<string, unknown>
  /** Items of the tar after all others. */
  more?: TarItem[]
}

/** The tar of a small project that is correct in every way, except for the changes. */
export function projectTar({ files = {}, manifest = {}, more = [] }: ProjectChanges = {}): Buffer {
  const all = projectFiles(OFFERED_VERSION, files)
  const items = Object.entries(all).map(([path, text]) => file(path, text))
  return buildTar([file('manifest.json', JSON.stringify({ ...manifestOf(all), ...manifest })), ...items, ...more])
}

function manifestOf(files: Record<string, string>): Record<string, unknown> {
  const digested = Object.entries(files).map(([path, text]) => ({ path, sha256: hash('sha256', text) }))
  const sha256Of = (folder: string): string => {
    const below = digested.filter(({ path }) => path.startsWith(`${folder}/`))
    return treeDigest(below.map(({ path, sha256 }) => ({ path: path.slice(folder.length + 1), sha256 })))
  }
  return {
    format_version: '1',
    project_id: PROJECT_ID,
    project_name: 'The shop',
    version: OFFERED_VERSION,
    built_at: '2026-01-02T03:04:05Z',
    plugins: [
      { id: 'cart', version: OFFERED_VERSION, sha256: sha256Of('plugins/cart') },
      { id: 'till', version: '7.0.0', sha256: sha256Of('plugins/till') },
    ],
    extensions: [{ id: 'mailer', sha256: sha256Of('extensions/mailer') }],
    content_sha256: treeDigest(digested),
  }
}
