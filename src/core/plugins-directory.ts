import { z } from 'zod/mini'

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
