import semver from 'semver'
import { z } from 'zod'
import { HubError } from './errors.ts'

export const kindSchema = z.enum(['plugin', 'service'], { error: 'must be plugin or service' })
export type Kind = z.infer<typeof kindSchema>

export const slugSchema = z.string().regex(/^[a-z0-9][a-z0-9_.-]{0,127}$/, {
  error: 'must be 1 to 128 characters (a-z, 0-9, "_", "." and "-"), starting with a letter or digit',
})

const MAX_SLUG_CHARS = 128

/** Turns a name into a slug: `My Plugin` becomes `my-plugin`. Undefined if the name has no ASCII letter or digit. */
export function slugOf(name: string): string | undefined {
  const slug = name
    .toLowerCase()
    .replace(/[^a-z0-9_.-]+/g, '-')
    .replace(/^[^a-z0-9]+|-+$/g, '')
  return slug === '' ? undefined : slug.slice(0, MAX_SLUG_CHARS)
}

/** Hosts ignore a leading `v` when they compare versions. */
export function withoutV(version: string): string {
  return version.replace(/^v(?=\d)/, '')
}

export const versionSchema = z.string().regex(/^[0-9A-Za-z][0-9A-Za-z.+_-]{0,127}$/, {
  error: 'must be 1 to 128 characters (0-9, A-Z, a-z, ".", "+", "_" and "-"), starting with a letter or digit',
})

/** The name of a version to publish. It cannot be `latest`: clients use that to ask for the newest version. */
export const newVersionSchema = versionSchema.refine(version => version !== 'latest', {
  error: 'must not be "latest", which stands for the newest version',
})

export const repoSchema = z.string().regex(/^[\w.-]{1,100}\/[\w.-]{1,100}@[\w.+/-]{1,200}$/, {
  error: 'must have the form owner/repo@tag',
})

/** One line for people to read: the name of a key, an owner, a plugin or a host. */
export const labelSchema = z.string().regex(/^[^\p{Cc}\p{Cs}\p{Zl}\p{Zp}]{1,255}$/u, {
  error: 'must be 1 to 255 characters without control characters, line separators or unpaired surrogates',
})

/** Parses the value. Throws one HubError 400 that names every wrong field. */
export function parseInput<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value, { error: issue => (issue.input === undefined ? 'is missing' : undefined) })
  if (result.success) return result.data
  throw new HubError(400, result.error.issues.map(describeIssue).join('; '))
}

function describeIssue(issue: z.core.$ZodIssue): string {
  return `${issue.path.join('.') || 'body'}: ${issue.message}`
}

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

export const statusSchema = z.enum(['success', 'failed', 'rolled_back'], {
  error: 'must be success, failed or rolled_back',
})

export const utcTimeSchema = z.iso
  .datetime({ offset: true, error: 'must be an ISO 8601 time' })
  .regex(/(Z|[+-]00:00)$/, { error: 'must be in UTC' })

/**
 * Sorts versions in the order of their publication, newest first: releases by semver, then pre-releases by semver, then
 * other names, the last published first. So a pre-release comes first only if none of the versions is a release.
 */
export function newestFirst<T extends { version: string }>(versions: readonly T[]): T[] {
  return versions.toReversed().sort((a, b) => rank(a.version) - rank(b.version) || compareWithinRank(b, a))
}

function rank(version: string): number {
  const parsed = semver.parse(version)
  if (parsed === null) return 2
  return parsed.prerelease.length === 0 ? 0 : 1
}

function compareWithinRank(a: { version: string }, b: { version: string }): number {
  return semver.valid(a.version) === null ? 0 : semver.compareBuild(a.version, b.version)
}
