import { lstatSync, readlinkSync, type Stats } from 'node:fs'
import { dirname, sep } from 'node:path'

/** The number of symlinks that Linux follows in one path. */
const MAX_SYMLINKS = 40

/** A directory, symlink or file, as lstat describes it. */
export interface Visited {
  /** Only the last name in this path may be a symlink. */
  readonly path: string
  readonly stat: Stats
}

export interface PathWalk {
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
