import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createDecipheriv, createPublicKey, generateKeyPairSync, verify } from 'node:crypto'
import type { TestContext } from 'node:test'
import { zstdDecompressSync } from 'node:zlib'
import { publishProject } from '../../../hub/project/publish.ts'
import { type SealedProject, type SealOptions, sealProject } from '../../../hub/project/seal.ts'
import type { Store } from '../../../hub/store.ts'
import { type Ends, newFolder } from '../running-hub.ts'

export const SIGNING_KEY = generateKeyPairSync('ed25519').privateKey

/** How each plan of the project `shop` begins. */
export const PLAN_HEAD = 'format_version: "1"\nproject_id: shop\nversion: 1.0.0\n'

/** The files of a small project `shop` with a plugin and an extension. */
export const SHOP = {
  'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.10"\nenvironment:\n  required: [DB_URL]\n',
  'plugins/cart/src/main.py': 'print("cart")\n',
  'plugins/cart/.env.template': 'DB_URL=\n',
  'extensions/mailer/run.sh': '#!/bin/sh\n',
  'deployment/install.yaml': `${PLAN_HEAD}steps:
  - {id: cart, action: install_plugin, plugin: cart}
  - {id: mailer, action: install_extension, extension: mailer}
  - {id: env, action: write_env, plugin: cart, from: plugins/cart/.env.template, depends_on: [cart]}
`,
} as const

/** Seals the project `shop`. `files` adds files to it, replaces its files or, with undefined, removes them. */
export async function sealShop(
  t: Ends,
  options: Partial<SealOptions> = {},
  files: Record<string, string | undefined> = {},
): Promise<SealedProject> {
  const source = options.source ?? newShop(t, files)
  return sealProject({ source, projectId: 'shop', version: '1.0.0', signingKey: SIGNING_KEY, ...options })
}

export function newShop(t: Ends, files: Record<string, string | undefined> = {}): string {
  const present = Object.entries({ ...SHOP, ...files }).filter(([, content]) => content !== undefined)
  return newFolder(t, Object.fromEntries(present) as Record<string, string>)
}

/** Seals the project `shop` and publishes it to the hub's data folder. */
export async function publishShop(t: TestContext, store: Store, version: string): Promise<SealedProject> {
  const sealed = await sealShop(t, { version })
  await publishProject(store, sealed)
  return sealed
}

type Sealed = Pick<SealedProject, 'bytes' | 'release'>

/** Opens the tar in a sealed file as the format describes (signature, tag, zstd), without the hub's own code. */
export function openSealed(sealed: Sealed): Buffer {
  return zstdDecompressSync(decryptSealed(sealed))
}

/** The zstd stream in a sealed file, whose signature and tag match. */
export function decryptSealed({ bytes, release }: Sealed): Buffer {
  const raw = Buffer.from(release.signer_public_key, 'base64').toString('base64url')
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw }, format: 'jwk' })
  assert.ok(verify(null, bytes, key, Buffer.from(release.signature, 'base64')))
  const dek = Buffer.from(release.dek, 'base64')
  const decipher = createDecipheriv('aes-256-gcm', dek, bytes.subarray(0, 12), { authTagLength: 16 })
  decipher.setAuthTag(bytes.subarray(-16))
  return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()])
}

/** The lines of `tar --list --verbose --numeric-owner`, in the order of the members. */
export function listTar(tar: Buffer): string[] {
  const args = ['--list', '--verbose', '--numeric-owner', '--full-time', '--quoting-style=literal', '--utc']
  const listed = execFileSync('tar', args, { input: tar, encoding: 'utf8', env: { ...process.env, LC_ALL: 'C.UTF-8' } })
  return listed.trimEnd().split('\n')
}

/** Extracts with the machine's tar into a folder that is removed when the test ends. */
export function extractTar(t: TestContext, tar: Buffer): string {
  const folder = newFolder(t)
  execFileSync('tar', ['--extract', '--directory', folder], { input: tar })
  return folder
}
