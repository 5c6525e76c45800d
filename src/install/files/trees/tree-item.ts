import { type BigIntStats, constants, lstatSync, readlinkSync } from 'node:fs'
import { errnoOf } from '../../../core/errors.ts'
import { isAbsent } from './tree-walk.ts'

/** A file, symlink or special file in a tree. */
export interface TreeItem {
  /** Relative to the tree's root. */
  readonly path: string
  /** The mode of a file in octal, such as `644`; `link` for a symlink, `other` for anything else. */
  readonly kind: string
  /** The size of a file in bytes, or the target of a symlink. */
  readonly content: string
}

export interface FoundItem extends TreeItem {
  /**
   * The inode and the times of the last modification and the last change, in nanoseconds. A write, chmod or replacement
   * of the item changes this text, except within one tick of the file system's clock. A move of a directory that
   * contains the item does not change the text. Empty for a directory, or if the item cannot be examined.
   */
  readonly stamp: string
}

/**
 * The character that Node returns for bytes of a name that are not UTF-8. A path with this character does not lead to
 * the file with that name.
 */
const UNREADABLE = '\ufffd'

/**
 * True if a system error says that this process cannot see what is at a path. Other users can cause such an error on
 * purpose.
 */
export function isBarred(error: unknown): boolean {
  return ['EACCES', 'EPERM', 'ELOOP', 'ENAMETOOLONG'].includes(errnoOf(error) ?? '')
}

/** Returns the stamp of a `FoundItem`. */
export function stampOf({ ino, mtimeNs, ctimeNs }: BigIntStats): string {
  // A template would also keep its parts in memory, which would take three times as much.
  return [ino, mtimeNs, ctimeNs].join('\t')
}

/**
 * Returns the item at a path, or undefined if there is none. The times of a directory, which change with its entries,
 * do not count.
 */
export function describeItemSync(root: string, path: string): FoundItem | undefined {
  const at = `${root}/${path}`
  try {
    const stat = lstatSync(at, { bigint: true })
    // The methods of BigIntStats compute with large integers: calling them takes as long as the rest of this function.
    const mode = Number(stat.mode)
    switch (mode & constants.S_IFMT) {
      case constants.S_IFREG:
        return { path, kind: (mode & 0o7777).toString(8), content: String(stat.size), stamp: stampOf(stat) }
      case constants.S_IFLNK:
        return { path, kind: 'link', content: readlinkSync(at), stamp: stampOf(stat) }
      default:
        return { path, kind: 'other', content: '', stamp: stat.isDirectory() ? '' : stampOf(stat) }
    }
  } catch (error) {
    const isHidden = isBarred(error) || (isAbsent(error) && path.includes(UNREADABLE))
    if (isHidden) return { path, kind: 'other', content: '', stamp: '' }
    if (isAbsent(error)) return undefined
    throw error
  }
}
