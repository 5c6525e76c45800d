import { z } from 'zod/mini'

/** The form of a slug. Only names of the forms in docs/contracts.md, "Names", reach a path, a URL or a log line. */
export const slugSchema = z.string().check(
  z.regex(/^[a-z0-9][a-z0-9_.-]{0,127}$/, {
    error: 'must be 1 to 128 characters (a-z, 0-9, "_", "." and "-"), starting with a letter or digit',
  }),
)

/** The name of a part's directory below `plugins/` or `extensions/`; the alphabet is the same as that of a slug. */
export const idSchema = slugSchema

export const stepIdSchema = z.string().check(
  z.regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, {
    error: 'must be 1 to 64 characters (a-z, 0-9, "_" and "-"), starting with a letter or digit',
  }),
)

export const versionSchema = z.string().check(
  z.regex(/^[0-9A-Za-z][0-9A-Za-z.+_-]{0,127}$/, {
    error: 'must be 1 to 128 characters (0-9, A-Z, a-z, ".", "+", "_" and "-"), starting with a letter or digit',
  }),
)

/** Without `.` and `..`, which have a different meaning in a path. */
export const projectIdSchema = z.string().check(
  z.regex(/^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,128}$/, {
    error: 'must be 1 to 128 characters (A-Z, a-z, 0-9, "_", "." and "-"), and neither "." nor ".."',
  }),
)

/** A host's name in reports. */
export const hostIdSchema = z.string().check(
  z.regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,255}$/u, {
    error:
      'must be 1 to 255 characters, without control and format characters (such as a soft hyphen) or line separators',
  }),
)

/** SHA-256 as 64 hex digits; upper case is accepted and converted to lower case. */
export const sha256Schema = z.pipe(
  z.string().check(z.regex(/^[0-9a-fA-F]{64}$/, { error: 'must be 64 hex digits' })),
  z.transform(hex => hex.toLowerCase()),
)

export const kindSchema = z.enum(['plugin', 'service'], { error: 'must be plugin or service' })
export type Kind = z.infer<typeof kindSchema>
