import semver from 'semver'
import { z } from 'zod'
import { versionSchema } from '../names.ts'

export const projectIdSchema = z.string().regex(/^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,128}$/, {
  error: 'must be 1 to 128 characters (A-Z, a-z, 0-9, "_", "." and "-"), and neither "." nor ".."',
})

/** The id of a plugin or an extension, which is its folder's name. */
export const partIdSchema = z.string().regex(/^[a-z0-9][a-z0-9_.-]{0,127}$/, {
  error: 'must be 1 to 128 characters (a-z, 0-9, "_", "." and "-"), starting with a letter or digit',
})

/** The version of a project: semver, without a leading `v`. */
export const projectVersionSchema = versionSchema.refine(isSemver, {
  error: 'must be a semantic version, such as 1.4.0 or 2.0.0-beta.1',
})

const PUBLIC_KEY_BYTES = 32
const PRIVATE_PEM = /-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----/
const PLUGINS_DIRNAME = /^(?=.{1,255}$)(?!(?:extensions|deployment)(?:\/|$))[A-Za-z0-9_-]+(?:\/[A-Za-z0-9_-]+)*$/i

export const pluginsDirnameSchema = z.string().regex(PLUGINS_DIRNAME, {
  error:
    'must be at most 255 characters: folder names of A-Z, a-z, 0-9, "_" and "-", joined by "/", the first of which is neither extensions nor deployment',
})

/** Exactly this many bytes, in canonical base64 with padding. */
export function base64Schema(bytes: number) {
  return z.string().refine(text => isBase64(text, bytes), { error: `must be ${bytes} bytes in base64` })
}

/** The raw 32 bytes of an Ed25519 public key, in base64 (contract 2.2). */
export const publicKeySchema = z.string().refine(text => isBase64(text, PUBLIC_KEY_BYTES), {
  error: ({ input }) =>
    PRIVATE_PEM.test(String(input))
      ? 'must be the public key that "project keygen" prints, but is a private key, which must stay secret'
      : `must be ${PUBLIC_KEY_BYTES} bytes in base64`,
})

function isSemver(version: string): boolean {
  return /^\d/.test(version) && semver.valid(version) !== null
}

function isBase64(text: string, bytes: number): boolean {
  const decoded = Buffer.from(text, 'base64')
  return decoded.length === bytes && decoded.toString('base64') === text
}
