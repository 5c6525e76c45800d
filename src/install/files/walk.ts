import {
  type BigIntStats,
  constants,
  type Dirent,
  lstatSync,
  opendirSync,
  promises,
  readdirSync,
  readlinkSync,
  type Stats,
} from 'node:fs'
import { join } from 'node:path'
import { errnoOf } from '../../core/errors.ts'
import { comparePaths } from '../../core/trust/tree-digest.ts'

/** Directories up to this size, with a few thousand entries at most, are read at once. */
const MAX_BYTES_AT_ONCE = 64 * 1024
const LISTED_AT_ONCE = 2000
/** The approximate number of names to list before the first item is yielded. A service may have created millions. */
const MAX_LISTED_AHEAD = 30_000
/** Shared by all directories without subdirectories: an empty map for each would take more memory than the names do. */
const NO_DIRECTORIES = new Map<string, Listing | undefined>()

/** The items to leave out of a scan, and the callbacks for its findings. */
export interface ScanRules {
  readonly isLeftOut: (path: string) => boolean
  /** Called with every directory that is listed, including `root`, whose path is empty. */
  readonly onDirectory?: ((path: string) => void) | undefined
  /**
   * Called with every path below `root` that is not left out, and the stamp of the item there; the stamp is empty if
   * unknown. The stamp of a directory dates from before the directory was listed.
   */
  readonly onStamp?: ((path: string, stamp: string) => void) | undefined
}

/**
 * Yields every file, symlink and special file below `root` in the order of a tree digest, except those for which
 * `isLeftOut` returns true. Directories are implied; a directory that cannot be listed counts as a special file.
 * Follows no symlink: yields nothing unless `root` itself is a directory. An undefined item is a pause.
 */
export function* scanTree(
  root: string,
  { isLeftOut, onDirectory, onStamp }: ScanRules,
): Generator<FoundItem | undefined, undefined> {
  if (!lstatIfPresentSync(root)?.isDirectory()) return
  const top = yield* listDirectorySync(root, '')
  if (top === undefined) return
  yield* listAhead(root, top, isLeftOut)
  onDirectory?.('')
  const open = [visit(top)]
  for (let at = open.at(-1); at !== undefined; at = open.at(-1)) {
    const { listing } = at
    const name = at.names[at.next++]
    if (name === undefined) {
      open.pop()
      continue
    }
    const path = `${listing.prefix}${name}`
    if (isLeftOut(path)) continue
    const below = listing.directories.has(name) ? yield* enterDirectory(root, listing, name) : undefined
    if (below === undefined) {
      const item = describeItemSync(root, path)
      onStamp?.(path, item?.stamp ?? '')
      yield item
      continue
    }
    onStamp?.(path, below.stamp)
    onDirectory?.(path)
    open.push(visit(below))
  }
}

/** The entries of one directory, in order. */
interface Listing {
  /** The path of the directory and a slash; empty for the root. */
  readonly prefix: string
  readonly stamp: string
  /** Joined by slashes until the directory is visited: one text takes less than half the memory of many. */
  readonly names: string
  readonly count: number
  /** The directories among the entries, each with its listing if there is one. */
  readonly directories: Map<string, Listing | undefined>
}

/** A listing, and the number of its names that have been visited. */
interface Visit {
  readonly listing: Listing
  readonly names: readonly string[]
  next: number
}

function visit(listing: Listing): Visit {
  return { listing, names: listing.count === 0 ? [] : listing.names.split('/'), next: 0 }
}

/**
 * Lists directories below a listed directory before they are visited. The first read of a directory makes the file
 * system note the access time in its journal, and that write has to wait while the file system is being synced.
 */
function* listAhead(root: string, top: Listing, isLeftOut: ScanRules['isLeftOut']): Generator<undefined, undefined> {
  let room = MAX_LISTED_AHEAD - top.count
  const pending = [top]
  for (let listing = pending.pop(); listing !== undefined; listing = pending.pop()) {
    for (const name of listing.directories.keys()) {
      if (room <= 0) return
      const path = `${listing.prefix}${name}`
      if (isLeftOut(path)) continue
      const below = yield* listDirectorySync(`${root}/${path}`, `${path}/`)
      if (below === undefined) continue
      listing.directories.set(name, below)
      room -= below.count
      pending.push(below)
    }
  }
}

/**
 * Returns the current listing of a directory, or undefined if the directory cannot be listed. Returns the earlier
 * listing if the directory still has the same stamp. In any case, removes the earlier listing from `above`.
 */
function* enterDirectory(root: string, above: Listing, name: string): Generator<undefined, Listing | undefined> {
  const at = `${root}/${above.prefix}${name}`
  const listed = above.directories.get(name)
  above.directories.set(name, undefined)
  if (listed !== undefined && listed.stamp === stampAt(at)) return listed
  return yield* listDirectorySync(at, `${above.prefix}${name}/`)
}

/** Returns undefined if nothing is visible at the path. */
function stampAt(at: string): string | undefined {
  try {
    return stampOf(lstatSync(at, { bigint: true }))
  } catch {
    return undefined
  }
}

/** Returns undefined unless a directory that can be listed is at the path. */
function* listDirectorySync(at: string, prefix: string): Generator<undefined, Listing | undefined> {
  const names: string[] = []
  let directories: Map<string, Listing | undefined> = NO_DIRECTORIES
  let [stamp, hasSurrogates] = ['', false]
  try {
    const stat = lstatSync(at, { bigint: true })
    // The directory may have become a symlink, which is not followed.
    if (!stat.isDirectory()) return undefined
    stamp = stampOf(stat)
    for (const entry of stat.size <= MAX_BYTES_AT_ONCE ? readdirSync(at, { withFileTypes: true }) : readLarge(at)) {
      names.push(entry.name)
      hasSurrogates ||= /[\ud800-\udfff]/.test(entry.name)
      if (entry.isDirectory()) {
        if (directories === NO_DIRECTORIES) directories = new Map()
        directories.set(entry.name, undefined)
      }
      if (names.length % LISTED_AT_ONCE === 0) yield
    }
  } catch (error) {
    if (isAbsent(error) || isBarred(error)) return undefined
    throw error
  }
  yield
  // Without surrogates, the order of code units is that of code points, and sorting takes a tenth of the time.
  names.sort(hasSurrogates ? comparePaths : undefined)
  return { prefix, stamp, names: names.join('/'), count: names.length, directories }
}

/** Takes twice as long as `readdirSync` for each entry. */
function* readLarge(at: string): Generator<Dirent, undefined> {
  const directory = opendirSync(at)
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) yield entry
  } finally {
    directory.closeSync()
  }
}

type TreeEntry =
  | { type: 'file'; path: string; size: number; mode: number }
  | { type: 'symlink'; path: string; target: string }
  | { type: 'other'; path: string }

/**
 * Returns every file, symlink and special file below `root` (directories are implied), with paths relative to `root`,
 * ordered by path components. Leaves out the paths in `skip`. Follows no symlink below `root`. Returns an empty list if
 * `root` is not a directory.
 */
export async function walkTree(root: string, skip: ReadonlySet<string> = new Set()): Promise<TreeEntry[]> {
  const found: TreeEntry[] = []
  const pending = ['']
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    for (const entry of await listDirectory(join(root, directory))) {
      const path = directory === '' ? entry.name : `${directory}/${entry.name}`
      if (skip.has(path)) continue
      if (entry.isDirectory()) pending.push(path)
      else found.push(...(await entriesAt(root, path)))
    }
  }
  return found.sort((a, b) => comparePaths(a.path, b.path))
}

/** True if anything is at the path, including a dangling symlink. */
export function pathExistsSync(path: string): boolean {
  return lstatIfPresentSync(path) !== undefined
}

/** Returns the result of lstat, or undefined if nothing is at the path. */
export function lstatIfPresentSync(path: string): Stats | undefined {
  try {
    return lstatSync(path)
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw error
  }
}

/** True if a system error says that nothing is at the path. */
export function isAbsent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')
}

async function listDirectory(path: string) {
  try {
    return await promises.readdir(path, { withFileTypes: true })
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}

/** Returns an empty list if another process has just removed the item. */
async function entriesAt(root: string, path: string): Promise<TreeEntry[]> {
  try {
    const stat = await promises.lstat(join(root, path))
    if (stat.isSymbolicLink()) return [{ type: 'symlink', path, target: await promises.readlink(join(root, path)) }]
    const entry = { type: 'file', path, size: stat.size, mode: stat.mode & 0o7777 } as const
    return [stat.isFile() ? entry : { type: 'other', path }]
  } catch (error) {
    if (isAbsent(error)) return []
    throw error
  }
}

/** A file, symlink or special file in a tree. */
export interface TreeItem {
  /** Relative to the tree's root. */
  readonly path: string
  /** The mode of a file in octal, such as `644`; `link` for a symlink, `other` for anything else. */
  readonly kind: string
  /** The size of a file in bytes, or the target of a symlink. */
  readonly content: string
  /** The owner of a file; undefined if unknown. */
  readonly owner?: string | undefined
}

/** True if an item of a tree or of its record is a regular file. */
export function isFile({ kind }: Pick<TreeItem, 'kind'>): boolean {
  return kind !== 'link' && kind !== 'other'
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

function describeFile(path: string, stat: BigIntStats, mode: number): FoundItem {
  const kind = (mode & 0o7777).toString(8)
  return { path, kind, content: String(stat.size), stamp: stampOf(stat), owner: ownerOf(stat) }
}

const US = BigInt(process.getuid?.() ?? -1)

/**
 * Returns the owner of an item: `us` for the user of this process, else the uid. In a container, or after an operator has
 * given a whole host to another user, the files of our user have another number.
 */
export function ownerOf({ uid }: BigIntStats): string {
  return uid === US ? 'us' : String(uid)
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
        return describeFile(path, stat, mode)
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
