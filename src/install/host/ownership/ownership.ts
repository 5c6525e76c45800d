import { join } from 'node:path'
import { DeploymentError } from '../../../core/errors.ts'
import { DEFAULT_PLUGINS_DIRECTORY, EXTENSIONS_DIRECTORY } from '../../../core/plugins-directory.ts'
import { toHostError } from '../../files/system-errors.ts'
import { readInstalled } from '../installed/host-record.ts'
import { placeOf } from '../installed/row-place.ts'
import type { Layout } from '../layout.ts'
import { decidersOf } from './deciders.ts'
import { describeExposure, type Exposure, exposureOf, writable } from './exposure.ts'
import { requireOwnFolder } from './own-folder.ts'
import { walkPath } from './path-walk.ts'
import { UntouchableHostError } from './untouchable-host.ts'

const USUAL_DIRECTORIES: readonly string[] = [DEFAULT_PLUGINS_DIRECTORY, EXTENSIONS_DIRECTORY]

/** A project root, and whether the operator accepts a root that others own or can write to. */
export interface HostAccess {
  readonly layout: Layout
  readonly sharedRoot: SharedRoot
}

export interface SharedRoot {
  readonly isAllowed: boolean
  /** The name that messages use for the option that allows a shared root. Default: `allow-shared-root`. */
  readonly option?: string
}

/**
 * Checks that only the runner's user and root could have written the files that a run trusts below the project root.
 * The root, its shelves, and every directory and symlink on the way to them must belong to one of these two users, and
 * nobody else may be able to write there. `.hub-deploy/` must pass `requireOwnFolder`. A missing path passes. Reads
 * names, owners and modes, and then, from `installed.json`, the directories of plugins.
 *
 * Returns one sentence for each path that the operator accepts although others own it or can write to it.
 *
 * Throws UntouchableHostError `unsafe_host`, which says what is unsafe and how to fix it. If the host could not be
 * checked, throws UntouchableHostError with the code and message of the error that prevented the check.
 */
export function requireSafeHost(access: HostAccess): string[] {
  return checking(access, us => {
    const usual = requireTrusted(access, { us, directories: USUAL_DIRECTORIES })
    requireOwnFolder({ layout: access.layout, us })
    const recorded = requireTrusted(access, { us, directories: recordedDirectories(access.layout) })
    return [...new Set([...usual, ...recorded])]
  })
}

/**
 * Checks one more directory of plugins, given relative to the root, and everything on the way there, as
 * `requireSafeHost` does. Leaves out the sentences about the root and its usual directories. Throws
 * UntouchableHostError.
 */
export function requireSafeDirectory(access: HostAccess, directory: string): string[] {
  return checking(access, us => {
    const found = requireTrusted(access, { us, directories: [directory] })
    const usual = new Set(requireTrusted(access, { us, directories: USUAL_DIRECTORIES }))
    return found.filter(sentence => !usual.has(sentence))
  })
}

/**
 * Does the same as `requireSafeDirectory` in a deployment that has begun on a safe host. Throws DeploymentError
 * instead, with the same code, because the end of that deployment is reported.
 */
export function requireSafeDestination(access: HostAccess, directory: string): string[] {
  try {
    return requireSafeDirectory(access, directory)
  } catch (error) {
    if (!(error instanceof UntouchableHostError)) throw error
    throw new DeploymentError(error.code, `${error.reason} Nothing was installed or moved.`, { cause: error })
  }
}

function checking(access: HostAccess, check: (us: number) => string[]): string[] {
  const us = process.getuid?.()
  if (us === undefined) return []
  try {
    return check(us)
  } catch (error) {
    if (error instanceof UntouchableHostError) throw error
    const { code, message } = toHostError(error, `checking who can write to ${access.layout.root}`)
    throw new UntouchableHostError(code, message, { cause: error })
  }
}

/** Directories below the root, and the uid that they must belong to. */
interface Trusted {
  readonly us: number
  readonly directories: readonly string[]
}

function requireTrusted(access: HostAccess, trusted: Trusted): string[] {
  const { layout, sharedRoot } = access
  const exposures = findExposures(layout.root, trusted)
  const refused = sharedRoot.isAllowed ? exposures.filter(({ isPlantable }) => isPlantable) : exposures
  const option = sharedRoot.option ?? 'allow-shared-root'
  if (refused.length > 0) throw writable(refused, { us: trusted.us, option })
  return exposures.map(
    exposure => `${describeExposure(exposure)}. ${option} accepts that, so these users decide what runs here.`,
  )
}

/**
 * Returns the directories of plugins in our own record, except the usual ones. If the record cannot be read, returns
 * none, because no run uses those directories in that case.
 */
function recordedDirectories(layout: Layout): string[] {
  try {
    const directories = readInstalled(layout).map(row => placeOf(row).directory)
    return [...new Set(directories)].filter(directory => !USUAL_DIRECTORIES.includes(directory))
  } catch {
    return []
  }
}

/** Returns each exposed path once, with those of the root first. */
function findExposures(root: string, { us, directories }: Trusted): Exposure[] {
  const found = new Map<string, Exposure>()
  if (directories.length === 0) return []
  const inside = `${walkPath(root).end?.path ?? root}/`
  for (const start of [root, ...directories.map(directory => join(root, directory))]) {
    for (const decider of decidersOf(start, us)) {
      const exposure = exposureOf(decider, us)
      if (exposure === undefined || found.has(exposure.path)) continue
      const isPublic = exposure.isPublic && !exposure.path.startsWith(inside)
      found.set(exposure.path, { ...exposure, isPublic, isPlantable: start !== root && decider.stat.isSymbolicLink() })
    }
  }
  return [...found.values()]
}
