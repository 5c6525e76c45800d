import { type Visited, walkPath } from './path-walk.ts'

const STICKY = 0o1000
const GROUP_AND_OTHERS_WRITE = 0o022

/** A directory or symlink that decides where a path leads or what is there. */
export interface Decider extends Visited {
  /** Whether the directory or symlink belongs neither to us nor to root. */
  readonly isForeign: boolean
  /**
   * Whether users other than the owner can change the result. Write access that an ACL grants shows in the group's
   * bits.
   */
  readonly isOpen: boolean
}

/**
 * Returns everything that decides where an absolute path leads and what is there, in the order of `walkPath`; `us` is
 * our uid.
 */
export function decidersOf(path: string, us: number): Decider[] {
  const { way, end } = walkPath(path)
  const before = way.map(visited => judge(visited, { us, isEnd: false }))
  return end?.stat.isDirectory() ? [...before, judge(end, { us, isEnd: true })] : before
}

/** In a sticky directory, other users can rename and remove only their own files. */
export function isSticky({ mode }: Visited['stat']): boolean {
  return (mode & STICKY) !== 0
}

/** The sticky bit is not enough at the end of a path, where others could add a file. */
function judge(visited: Visited, { us, isEnd }: { us: number; isEnd: boolean }): Decider {
  const { uid, mode } = visited.stat
  // The mode of a symlink has no meaning.
  const isFixed = visited.stat.isSymbolicLink() || (!isEnd && isSticky(visited.stat))
  return {
    ...visited,
    isForeign: uid !== us && uid !== 0,
    isOpen: !isFixed && (mode & GROUP_AND_OTHERS_WRITE) !== 0,
  }
}
