import { constants } from 'node:fs'
import { isAbsolute, join, relative } from 'node:path'
import { parseIntegration } from '../../core/content/plugin-yaml.ts'
import { ConfigError, errnoOf } from '../../core/errors.ts'
import { DEFAULT_PLUGINS_DIRECTORY, PLUGIN_YAML_LIMITS, writtenPluginsDirectorySchema } from '../../core/identifiers.ts'
import type { Log } from '../../core/log.ts'
import { cleanForeignText } from '../../core/text.ts'
import { readSmallFileSync } from '../files/open.ts'
import { isSamePath } from '../files/spelling.ts'
import type { Layout } from './layout.ts'
import { readHostRecord, recordedDirectories } from './record.ts'
import { findRealDirectory } from './switchable.ts'

/** The host framework's own files, relative to the project root: the framework reads only the first that exists. */
const INTEGRATION_FILES = [
  'integration.yaml',
  'integration.json',
  'config/integration.json',
  'config/integration.yaml',
] as const

/** The directory for a host's plugins, and whether the operator chose it for this run. */
export interface PluginsDirectory {
  readonly directory: string
  /**
   * False if the directory is the default, or comes from our record or from the host's own file, which other programs
   * may write.
   */
  readonly isOperators: boolean
}

/** The directories that are known before the host's own file is read. */
export interface KnownDirectories {
  /** The operator's input. */
  readonly input: string | undefined
  /** The directory of the plugin in our own record. The plugin stays there if the host's file cannot be used. */
  readonly recorded: string | undefined
  /** The directory if neither the operator nor the host's file names one. */
  readonly otherwise: string
}

/**
 * Returns the directory that the operator names, else the one in the host framework's own file, else `otherwise`. If
 * that directory is the recorded one under another name, returns the recorded name. Warns if the host's file names a
 * different directory than the operator does. If the operator names no directory and the file cannot be used, warns and
 * returns the recorded directory, or `plugins` without a record.
 */
export function findPluginsDirectory(layout: Layout, known: KnownDirectories, log: Log): PluginsDirectory {
  const { recorded } = known
  const named = findNamedDirectory(layout, known, log)
  const isRecorded = recorded !== undefined && isSameDirectory(layout, named.directory, recorded)
  return { ...named, directory: isRecorded ? recorded : asRecorded(layout, named.directory) }
}

/** True if both paths lead to the same directory, for example by a symlink or in another spelling. */
function isSameDirectory(layout: Layout, directory: string, other: string): boolean {
  const [real, otherReal] = [findRealDirectory(layout, directory), findRealDirectory(layout, other)]
  return real !== undefined && otherReal !== undefined && isSamePath(real, otherReal)
}

/**
 * Returns a directory of plugins in the spelling that this host's record or the default uses, if this host's file
 * system treats the two spellings as one. Each directory then has one name in the records.
 */
export function asRecorded(layout: Layout, directory: string): string {
  const names = [...recordedDirectories(readHostRecord(layout)), DEFAULT_PLUGINS_DIRECTORY]
  const pathOf = (name: string): string => join(layout.root, name)
  return names.find(name => isSamePath(pathOf(name), pathOf(directory))) ?? directory
}

function findNamedDirectory(
  layout: Layout,
  { input, recorded, otherwise }: KnownDirectories,
  log: Log,
): PluginsDirectory {
  const { file, directory, outside, problem } = readHostsDirectory(layout)
  if (input !== undefined) {
    const hosts = directory ?? outside
    if (hosts !== undefined && !isSameDirectory(layout, hosts, input) && !leadsTo(layout, input, outside))
      log.warning(
        `plugins-directory is ${input}, but ${file} says that the host loads plugins from ${hosts}: correct one of the two.`,
      )
    return { directory: input, isOperators: true }
  }
  if (problem === undefined) return { directory: directory ?? otherwise, isOperators: false }
  const used = recorded ?? DEFAULT_PLUGINS_DIRECTORY
  log.warning(`${problem} This run uses ${used} as the plugins directory. Correct the file, or set plugins-directory.`)
  return { directory: used, isOperators: false }
}

/**
 * Throws ConfigError `invalid_input` if the host loads its plugins from an absolute directory outside the project root:
 * nothing that this action installs would be loaded.
 */
export function refuseOutsideDirectory(layout: Layout, remedy: string): void {
  const { outside, problem } = readHostsDirectory(layout)
  if (outside === undefined) return
  throw new ConfigError('invalid_input', `${problem} Nothing was changed. ${remedy}.`)
}

/**
 * Warns if the host does not load plugins from the directory in which a project installs them, or if the host's file
 * cannot be used.
 */
export function warnOfOtherDirectory(layout: Layout, directory: string, log: Log): void {
  const { file, directory: asked, problem } = readHostsDirectory(layout)
  if (problem !== undefined)
    log.warning(
      `${problem} This project installs its plugins in ${directory}: make sure that the host loads them from there.`,
    )
  if (asked === undefined || isSameDirectory(layout, asked, directory)) return
  log.warning(
    `This project installs its plugins in ${directory}, but ${file} says that the host loads them from ${asked}. Set plugins.directory in that file to ${directory}, or ask the publisher to set plugins_dirname to ${asked}.`,
  )
}

/**
 * Returns every directory in which this host may have plugins: the default one, the one in the host framework's own
 * file, and all recorded ones.
 */
export function knownDirectories(layout: Layout): string[] {
  const { directory } = readHostsDirectory(layout)
  const hosts = directory === undefined ? [] : [directory]
  return [...new Set([DEFAULT_PLUGINS_DIRECTORY, ...hosts, ...recordedDirectories(readHostRecord(layout))])]
}

/**
 * The content of the host framework's own file. No field is set if there is no file; only `file` is set if the file
 * names no directory.
 */
interface HostsDirectory {
  /** Absolute. */
  readonly file?: string
  readonly directory?: string
  /** The absolute directory that the file names, if it is outside the project root. */
  readonly outside?: string
  /** Why the file's directory cannot be used. One sentence. */
  readonly problem?: string
}

/** Reads the first of the host framework's own files that exists, as `readIntegration` does. */
export function readHostsDirectory(layout: Layout): HostsDirectory {
  for (const name of INTEGRATION_FILES) {
    const found = readIntegration(layout, join(layout.root, name))
    if (found !== undefined) return found
  }
  return {}
}

/**
 * Reads a file of the host framework, unless it is a symlink, which could lead to a secret of the runner's user.
 * Returns undefined if the file does not exist.
 */
function readIntegration(layout: Layout, file: string): HostsDirectory | undefined {
  try {
    const text = readSmallFileSync(file, PLUGIN_YAML_LIMITS.bytes, constants.O_NOFOLLOW)
    if (text === undefined)
      return { file, problem: `${file} is not a regular file of at most ${PLUGIN_YAML_LIMITS.bytes} bytes.` }
    const written = parseIntegration(text, file.endsWith('.json') ? 'json' : 'yaml')
    return written === undefined ? { file } : { file, ...directoryOf(layout, file, written) }
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'ENOENT' || errno === 'ENOTDIR') return undefined
    if (errno === 'ELOOP') return { file, problem: `${file} is a symlink, which is not followed.` }
    const reason = errno === undefined && error instanceof Error ? error.message : `cannot be read (${errno})`
    return { file, problem: `${file} ${reason}.` }
  }
}

/**
 * Returns the directory that the host's file names, relative to the project root. An absolute path may be below the
 * root under another name of the root, and `plugins` may be a symlink to a directory anywhere.
 */
function directoryOf(layout: Layout, file: string, written: string): HostsDirectory {
  const directory = isAbsolute(written) ? insideRoot(layout, written) : written
  const named = `"${cleanForeignText(written, 100)}"`
  if (directory === undefined) {
    const outside = cleanForeignText(written, 100)
    return {
      outside,
      problem: `${file} says that the host loads plugins from ${named}, which is outside project-root.`,
    }
  }
  const { success, data, error } = writtenPluginsDirectorySchema.safeParse(directory)
  if (success) return { directory: data }
  const expected = error.issues[0]?.message ?? 'must be a relative path'
  return { problem: `${file} has a plugins.directory that ${expected}, but found ${named}.` }
}

function insideRoot(layout: Layout, path: string): string | undefined {
  const named = relative(layout.root, path)
  if (isInside(named)) return named
  const [real, root] = [tryRealDirectory(layout, named), tryRealDirectory(layout, '')]
  if (real === undefined || root === undefined) return undefined
  if (isInside(relative(root, real))) return relative(root, real)
  return leadsTo(layout, DEFAULT_PLUGINS_DIRECTORY, path) ? DEFAULT_PLUGINS_DIRECTORY : undefined
}

/** Returns undefined for a directory outside the root that this run may not examine. */
function tryRealDirectory(layout: Layout, directory: string): string | undefined {
  try {
    return findRealDirectory(layout, directory)
  } catch {
    return undefined
  }
}

function isInside(path: string): boolean {
  return path !== '..' && !path.startsWith('../')
}

/** True if a directory below the project root leads to this absolute path, for example by a symlink. */
function leadsTo(layout: Layout, directory: string, path: string | undefined): boolean {
  if (path === undefined) return false
  const real = tryRealDirectory(layout, relative(layout.root, path))
  return real !== undefined && real === findRealDirectory(layout, directory)
}
