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
