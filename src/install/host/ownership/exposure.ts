import { type Decider, isSticky } from './deciders.ts'
import { nameUser, otherWriters, quote } from './permissions.ts'
import { UntouchableHostError } from './untouchable-host.ts'

/** A directory or symlink that others own or can write to. */
export interface Exposure {
  readonly path: string
  readonly who: string
  readonly fix: string
  /**
   * Whether the directory is meant for all users, as /tmp is, and is not a part of the project root. Closing such a
   * directory would break other programs.
   */
  readonly isPublic: boolean
  /**
   * Whether this is another user's symlink on the way to a shelf. It could lead into any directory of ours, so it is
   * never accepted.
   */
  readonly isPlantable: boolean
}

/**
 * Returns which users other than root and this one own or can write to a path, and the fix. Returns undefined if there
 * are no such users.
 */
export function exposureOf({ path, stat, isForeign, isOpen }: Decider, us: number) {
  if (!isForeign && !isOpen) return undefined
  const writers = isOpen ? otherWriters(stat) : []
  const fixes = [isForeign ? [`chown -h ${us} ${quote(path)}`] : [], isOpen ? [`chmod go-w ${quote(path)}`] : []]
  return {
    path,
    who: [...(isForeign ? [nameUser(stat.uid)] : []), ...writers].join(' and '),
    fix: fixes.flat().join(' && '),
    isPublic: isOpen && isSticky(stat),
  }
}

/** Names the path and the users who can write or replace it. */
export function describeExposure({ path, who }: Exposure): string {
  return `${quote(path)} can be written or replaced by ${who}`
}

/** Returns the error that names every exposure and says how to close it. */
export function writable(
  exposures: readonly Exposure[],
  { us, option }: { us: number; option: string },
): UntouchableHostError {
  const found = exposures.map(describeExposure).join(', and ')
  const deciders = us === 0 ? 'root (0)' : `root and ${nameUser(us)}`
  return new UntouchableHostError(
    'unsafe_host',
    `Only ${deciders}, the user of this runner, may decide what is in project-root, but ${found}: ${describeRemedy(exposures, option)}.`,
  )
}

function describeRemedy(exposures: readonly Exposure[], option: string): string {
  const choice = exposures.some(({ isPlantable }) => isPlantable) ? '' : `, or set ${option} if you trust these users`
  const open = exposures.find(({ isPublic }) => isPublic)
  if (open !== undefined) return `${quote(open.path)} is meant for all users, so use a directory below it${choice}`
  return `run ${exposures.map(({ fix }) => fix).join(' && ')}${choice}`
}
