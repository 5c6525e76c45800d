import { constants } from 'node:fs'
import { join } from 'node:path'
import { parseIntegrationYaml } from '../../core/content/plugin-yaml.ts'
import { errnoOf } from '../../core/errors.ts'
import { DEFAULT_PLUGINS_DIRECTORY, PLUGIN_YAML_LIMITS } from '../../core/identifiers.ts'
import type { Log } from '../../core/log.ts'
import { readSmallFileSync } from '../files/open.ts'
import { isSamePath } from '../files/spelling.ts'
import type { Layout } from './layout.ts'
import { readHostRecord, recordedDirectories } from './record.ts'
import { findRealDirectory } from './switchable.ts'

const INTEGRATION = 'integration.yaml'

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
  const { directory, problem } = readHostsDirectory(layout)
  if (input !== undefined) {
    if (directory !== undefined && !isSameDirectory(layout, directory, input))
      log.warning(
        `plugins-directory is ${input}, but ${join(layout.root, INTEGRATION)} says that the host loads plugins from ${directory}: correct one of the two.`,
      )
    return { directory: input, isOperators: true }
  }
  if (problem === undefined) return { directory: directory ?? otherwise, isOperators: false }
  const used = recorded ?? DEFAULT_PLUGINS_DIRECTORY
  log.warning(`${problem} This run uses ${used} as the plugins directory. Correct the file, or set plugins-directory.`)
  return { directory: used, isOperators: false }
}

/**
 * Warns if the host does not load plugins from the directory in which a project installs them, or if the host's file
 * cannot be used.
 */
export function warnOfOtherDirectory(layout: Layout, directory: string, log: Log): void {
  const { directory: asked, problem } = readHostsDirectory(layout)
  if (problem !== undefined)
    log.warning(
      `${problem} This project installs its plugins in ${directory}: make sure that the host loads them from there.`,
    )
  if (asked === undefined || isSameDirectory(layout, asked, directory)) return
  log.warning(
    `This project installs its plugins in ${directory}, but ${join(layout.root, INTEGRATION)} says that the host loads them from ${asked}. Set plugins.directory in that file to ${directory}, or ask the publisher to set plugins_dirname to ${asked}.`,
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
 * The content of the host framework's own file. Neither field is set if there is no file, or if the file names no
 * directory.
 */
interface HostsDirectory {
  readonly directory?: string | undefined
  /** One sentence. */
  readonly problem?: string
}

/** Reads the host framework's own file, unless it is a symlink, which could lead to a secret of the runner's user. */
export function readHostsDirectory({ root }: Layout): HostsDirectory {
  const path = join(root, INTEGRATION)
  try {
    const text = readSmallFileSync(path, PLUGIN_YAML_LIMITS.bytes, constants.O_NOFOLLOW)
    if (text === undefined)
      return { problem: `${path} is not a regular file of at most ${PLUGIN_YAML_LIMITS.bytes} bytes.` }
    return { directory: parseIntegrationYaml(text) }
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'ENOENT' || errno === 'ENOTDIR') return {}
    if (errno === 'ELOOP') return { problem: `${path} is a symlink, which is not followed.` }
    const reason = errno === undefined && error instanceof Error ? error.message : `cannot be read (${errno})`
    return { problem: `${path} ${reason}.` }
  }
}
