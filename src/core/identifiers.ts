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

/** The default, relative to the project root. */
export const DEFAULT_PLUGINS_DIRECTORY = 'plugins'
/** This name is fixed (contract 2.1). */
export const EXTENSIONS_DIRECTORY = 'extensions'

const MAX_CHARS = 255
const PART = '(?!\\.{1,2}(?:/|$))[A-Za-z0-9_.-]+'
const NOT_RESERVED = '(?!(?:extensions|\\.hub-deploy)(?:/|$))'

/** Patterns without anchors: a directory of plugins, relative to the project root, and any directory of parts. */
const PLUGINS_DIRECTORY_PATTERN = `${NOT_RESERVED}${PART}(?:/${PART})*`
export const PARTS_DIRECTORY_PATTERN = `(?:${EXTENSIONS_DIRECTORY}|${PLUGINS_DIRECTORY_PATTERN})`

/** A directory of plugins: a path inside the project root, but not `extensions`, `.hub-deploy` or a path below them. */
export const pluginsDirectorySchema = z.string().check(
  z.refine(isPluginsDirectory, {
    error:
      'must be a relative path of at most 255 characters inside project-root, made of letters, digits, "_", ".", "-" and "/", without empty, "." or ".." components, and neither extensions nor .hub-deploy nor a path below them',
  }),
)

/** A directory of plugins as people may write it: drops every leading `./` and final `/`. */
export const writtenPluginsDirectorySchema = z.pipe(
  z.pipe(
    z.string(),
    z.transform(text => text.replace(/^(?:\.\/+)+/, '').replace(/(?<=.)\/+$/, '')),
  ),
  pluginsDirectorySchema,
)

/** Ignores case, because some file systems do. */
function isPluginsDirectory(text: string): boolean {
  return text.length <= MAX_CHARS && new RegExp(`^${PLUGINS_DIRECTORY_PATTERN}$`, 'i').test(text)
}

/**
 * Limits of the contracts (docs/contracts.md), in bytes unless the name says otherwise. The first three are defaults of
 * inputs.
 */
export const DEFAULT_MAX_ARTIFACT_BYTES = 512 * 1024 * 1024
export const DEFAULT_MAX_EXTRACTED_BYTES = 2 * 1024 * 1024 * 1024
export const DEFAULT_MAX_ENTRIES = 100_000
export const MAX_NAME_BYTES = 255
export const MAX_PATH_BYTES = 4096
/** Leaves room for the names that this action appends: the system limits the length of a whole path. */
export const MAX_PROJECT_ROOT_BYTES = 3500
export const MAX_PATH_LEVELS = 64
export const MAX_JSON_BODY_BYTES = 1024 * 1024
/** For a file that someone writes by hand: settings and their template. */
export const MAX_SMALL_FILE_BYTES = 256 * 1024

/** Limits on the cost of reading one YAML text. */
export interface YamlLimits {
  readonly bytes: number
  /** The number of words, signs, spaces and line endings that the parser distinguishes. */
  readonly lexemes: number
}

export const PLUGIN_YAML_LIMITS: YamlLimits = { bytes: 32 * 1024, lexemes: 16 * 1024 }
/** For the plan in a project's archive. */
export const BUNDLED_PLAN_LIMITS: YamlLimits = { bytes: 64 * 1024, lexemes: 32 * 1024 }
/** For the operator's own plan and host config. */
export const OPERATOR_YAML_LIMITS: YamlLimits = { bytes: 256 * 1024, lexemes: 128 * 1024 }

/** Returns a test that is true for each of these paths, and for paths below them. */
export function isBelow(paths: readonly string[]): (path: string) => boolean {
  return path => paths.some(kept => path === kept || path.startsWith(`${kept}/`))
}

/**
 * Returns why a path cannot be a keep-path, as a predicate; undefined for a literal relative path. Other tools use the
 * refused characters for something else.
 */
export function keepPathProblem(path: string): string | undefined {
  const [found] = /["'`#;*?[\]\\]|\p{Cc}/u.exec(path) ?? []
  if (found !== undefined)
    return `contains ${JSON.stringify(found)}: no pattern, quote, comment or other separator is read`
  const [mark] = /^(?:- |!|\/)/.exec(path) ?? []
  if (mark !== undefined) return `begins with ${JSON.stringify(mark)}`
  const part = path.split('/').find(name => name === '' || name === '.' || name === '..')
  return part === undefined ? undefined : `has ${part === '' ? 'an empty part' : `the part ${JSON.stringify(part)}`}`
}
