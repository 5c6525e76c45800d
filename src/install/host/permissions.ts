import { lstatSync, readFileSync, readlinkSync, type Stats } from 'node:fs'
import { dirname, sep } from 'node:path'
import { cleanForeignText } from '../../core/text.ts'

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
  const before = way.map(visited => deciderOf(visited, { us, isEnd: false }))
  return end?.stat.isDirectory() ? [...before, deciderOf(end, { us, isEnd: true })] : before
}

/** In a sticky directory, other users can rename and remove only their own files. */
export function isSticky({ mode }: Visited['stat']): boolean {
  return (mode & STICKY) !== 0
}

/** The sticky bit is not enough at the end of a path, where others could add a file. */
function deciderOf(visited: Visited, { us, isEnd }: { us: number; isEnd: boolean }): Decider {
  const { uid, mode } = visited.stat
  // The mode of a symlink has no meaning.
  const isFixed = visited.stat.isSymbolicLink() || (!isEnd && isSticky(visited.stat))
  return {
    ...visited,
    isForeign: uid !== us && uid !== 0,
    isOpen: !isFixed && (mode & GROUP_AND_OTHERS_WRITE) !== 0,
  }
}

/** The number of symlinks that Linux follows in one path. */
const MAX_SYMLINKS = 40

/** A directory, symlink or file, as lstat describes it. */
interface Visited {
  /** Only the last name in this path may be a symlink. */
  readonly path: string
  readonly stat: Stats
}

interface PathWalk {
  /** Everything before the end, in the order in which the system visits it: each symlink, then its target. */
  readonly way: readonly Visited[]
  /** The file or directory that the path leads to; undefined if nothing is there. */
  readonly end: Visited | undefined
}

/**
 * Returns everything that decides where an absolute path leads: each directory, starting with `/`, and each symlink.
 *
 * Throws the system's error if this process has no access to one of them.
 */
export function walkPath(path: string): PathWalk {
  const way: Visited[] = []
  const pending = partsOf(path)
  let links = 0
  let end = visit(sep)
  while (end !== undefined && pending.length > 0) {
    way.push(end)
    if (!end.stat.isDirectory()) return { way, end: undefined }
    const at: string = end.path
    const next = visit(childOf(at, pending.shift() ?? ''))
    if (!next?.stat.isSymbolicLink()) {
      end = next
      continue
    }
    way.push(next)
    if (++links > MAX_SYMLINKS) return { way, end: undefined }
    const target = readlinkSync(next.path)
    pending.unshift(...partsOf(target))
    end = visit(target.startsWith(sep) ? sep : at)
  }
  return { way, end }
}

/** Joins normal paths, faster than path.join; the name may be `..`, from a symlink. */
function childOf(directory: string, name: string): string {
  return name === '..' ? dirname(directory) : `${directory === sep ? '' : directory}/${name}`
}

function visit(path: string): Visited | undefined {
  const stat = lstatSync(path, { throwIfNoEntry: false })
  return stat && { path, stat }
}

function partsOf(path: string): string[] {
  return path.split(sep).filter(part => part !== '' && part !== '.')
}

const GROUP_WRITE = 0o020
const OTHERS_WRITE = 0o002

/**
 * Names those who can write to a file or directory, other than its owner. Write access that an ACL grants shows in the
 * group's bits.
 */
export function otherWriters({ mode, gid }: Stats): string[] {
  return [
    ...((mode & GROUP_WRITE) === 0 ? [] : [`${nameGroup(gid)} or an ACL`]),
    ...((mode & OTHERS_WRITE) === 0 ? [] : ['every user']),
  ]
}

/** Names a user for an operator: by the name in /etc/passwd, if there is one, and always by number. */
export function nameUser(uid: number): string {
  return nameAccount('/etc/passwd', 'user', uid)
}

/** Quotes a path as an argument of a command that the operator copies. */
export function quote(path: string): string {
  const text = cleanForeignText(path, 4096)
  return /^[\w/.@%+,:=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/** Returns the name in /etc/passwd; undefined if there is none. */
export function findUserName(uid: number): string | undefined {
  const name = findName('/etc/passwd', uid)
  return name === undefined ? undefined : cleanForeignText(name, 64)
}

function nameGroup(gid: number): string {
  return nameAccount('/etc/group', 'group', gid)
}

function nameAccount(file: string, kind: string, id: number): string {
  const name = findName(file, id)
  return name === undefined ? `${kind} ${id}` : `${kind} ${cleanForeignText(name, 64)} (${id})`
}

/** Both /etc/passwd and /etc/group have the name first and the number third. */
function findName(file: string, id: number): string | undefined {
  try {
    const rows = readFileSync(file, 'utf8').split('\n')
    return rows.map(row => row.split(':')).find(([, , number]) => number === String(id))?.[0]
  } catch {
    return undefined
  }
}

const GROUP_AND_OTHERS = 0o077

/**
 * Returns what is wrong with a directory that must be ours alone (its type, owner or mode), or undefined if nothing is
 * wrong.
 */
export function findExposureOf(found: Stats, us: number): 'type' | 'owner' | 'mode' | undefined {
  if (!found.isDirectory()) return 'type'
  if (found.uid !== us) return 'owner'
  return isOpenToOthers(found) ? 'mode' : undefined
}

/** True if users other than the owner have any access to a file or directory. */
function isOpenToOthers({ mode }: Stats): boolean {
  return (mode & GROUP_AND_OTHERS) !== 0
}
