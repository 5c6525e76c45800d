import { ArchiveError } from '../errors.ts'
import { cleanForeignText } from '../text.ts'
import { comparePaths } from '../trust/tree-digest.ts'

/** A file, directory or symlink of a planned tree. */
export interface TreeNode {
  /** The path from the archive's top. */
  readonly path: string
  readonly name: string
  /** The top has no name and is its own parent. */
  readonly parent: TreeNode
  /** The number of directories above, without the top. */
  readonly level: number
  readonly type: ExtractableType
  /** The number of the entry that lists the node; undefined for a directory that is so far only implied. */
  entry: number | undefined
  /** By the keys of their names, in the order in which they were added; empty unless the node is a directory. */
  readonly children: ReadonlyMap<string, TreeNode>
}

/** The type and the number of an entry that an archive lists. */
interface Listed {
  readonly type: ExtractableType
  readonly entry: number | undefined
}

/** What archivers of macOS add: the directory of extended attributes, and the settings of a folder's window. */
const STRAYS: ReadonlyMap<string, ExtractableType> = new Map([
  ['__MACOSX', 'directory'],
  ['.DS_Store', 'file'],
])

const NO_CHILDREN: ReadonlyMap<string, TreeNode> = new Map()

/**
 * The tree that an extraction will create. Refuses entries that could not exist next to each other: two equal names, a
 * file that is also a directory, and anything below a file or symlink. Names are equal if the platform may treat them
 * as one name.
 */
export class PlannedTree {
  readonly top: TreeNode
  readonly #platform: NodeJS.Platform
  #count = 0
  #directories = 0
  /** The entered directories by their paths with a slash, so that the depth of a directory costs nothing. */
  readonly #entered = new Map<string, TreeNode>()

  constructor(platform: NodeJS.Platform) {
    this.#platform = platform
    const top = { path: '', name: '', level: 0, type: 'directory' as const, entry: undefined, children: new Map() }
    this.top = Object.assign(top, { parent: top as unknown as TreeNode })
  }

  /** The number of files, directories and symlinks, listed and implied, without the top. */
  get count(): number {
    return this.#count
  }

  /**
   * Removes what archivers of macOS add at the top, next to the files that people packed. Returns their names. Removes
   * nothing if nothing else is there.
   */
  removeStrays(): readonly string[] {
    const { children } = this.top
    const strays = [...children.values()].filter(({ name, type }) => STRAYS.get(name) === type)
    if (strays.length === children.size) return []
    for (const stray of strays) {
      for (const node of [stray, ...this.inOrder(stray)]) {
        this.#count -= 1
        if (node.type === 'directory') this.#directories -= 1
      }
      ;(children as Map<string, TreeNode>).delete(this.#keyOf(stray.name))
    }
    return strays.map(({ name }) => name)
  }

  /** True if there are only directories. */
  get hasNoFiles(): boolean {
    return this.#count === this.#directories
  }

  /**
   * Adds a listed entry and the directories that its path implies. Throws ArchiveError `unsafe_archive` for an entry
   * that cannot exist next to the earlier ones.
   */
  add(path: string, listed: Listed): TreeNode {
    const nameAt = path.lastIndexOf('/') + 1
    const parent = this.#enter(path.slice(0, nameAt), path)
    const there = this.find(parent, path.slice(nameAt))
    return there === undefined ? this.#create(parent, path, listed) : this.#unite(there, path, listed)
  }

  /** Returns a directory's child with this name, or with a name that the platform may treat as equal. */
  find(directory: TreeNode, name: string): TreeNode | undefined {
    return directory.children.get(this.#keyOf(name))
  }

  /**
   * Yields everything below a directory: each directory before its contents, and the contents by name. This is the
   * order of the tree digest, found without comparing whole paths.
   */
  *inOrder(directory: TreeNode): Generator<TreeNode> {
    // Not recursive: a generator inside a generator costs a step for each level and node.
    const rest = [lastFirst(directory)]
    for (let siblings = rest.at(-1); siblings !== undefined; siblings = rest.at(-1)) {
      const node = siblings.pop()
      if (node === undefined) rest.pop()
      else {
        yield node
        if (node.children.size > 0) rest.push(lastFirst(node))
      }
    }
  }

  /**
   * Returns the directory at `path`, which ends with a slash unless it is empty; creates the directory and its parents
   * if necessary. `below` is the path of the entry that needs the directory.
   */
  #enter(path: string, below: string): TreeNode {
    if (path === '') return this.top
    const known = this.#entered.get(path)
    if (known !== undefined) return known
    const parent = this.#enter(path.slice(0, path.lastIndexOf('/', path.length - 2) + 1), below)
    const directory = this.#enterChild(parent, path.slice(0, -1), below)
    this.#entered.set(path, directory)
    return directory
  }

  #enterChild(parent: TreeNode, path: string, below: string): TreeNode {
    const name = nameIn(path)
    const there = this.find(parent, name)
    if (there === undefined) return this.#create(parent, path, { type: 'directory', entry: undefined })
    if (there.type !== 'directory') throw unsafeEntry(below, `is below "${there.path}", which is a ${there.type}`)
    if (there.name === name) return there
    throw unsafeEntry(below, `is in "${name}", which is the same name as "${there.path}" on this platform`)
  }

  #create(parent: TreeNode, path: string, { type, entry }: Listed): TreeNode {
    const name = nameIn(path)
    const children = type === 'directory' ? new Map<string, TreeNode>() : NO_CHILDREN
    const node = { path, name, parent, level: parent.level + 1, type, entry, children }
    ;(parent.children as Map<string, TreeNode>).set(this.#keyOf(name), node)
    this.#count += 1
    if (type === 'directory') this.#directories += 1
    return node
  }

  /**
   * Completes an implied directory, because a directory may be listed after its children. Refuses any other entry whose
   * name is taken.
   */
  #unite(there: TreeNode, path: string, { type, entry }: Listed): TreeNode {
    if (there.path !== path) throw unsafeEntry(path, `has the same name as "${there.path}" on this platform`)
    if (there.type !== type) throw unsafeEntry(path, `is both a ${there.type} and a ${type}`)
    if (there.entry !== undefined) throw unsafeEntry(path, 'is listed twice')
    there.entry = entry
    return there
  }

  #keyOf(name: string): string {
    return comparisonKey(name, this.#platform)
  }
}

function nameIn(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1)
}

function lastFirst({ children }: TreeNode): TreeNode[] {
  return [...children.values()].sort((a, b) => comparePaths(b.name, a.name))
}

const WINDOWS_DEVICE = /^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(?:\.|$)/i
const WINDOWS_FORBIDDEN = /[<>:"|?*]/
const WINDOWS_DROPPED_END = /[. ]$/
const IGNORED = /\p{Default_Ignorable_Code_Point}/gu
const NON_ASCII = /[^\p{ASCII}]/u

/** Returns why the platform would not keep a path component as it is written; undefined if it would. */
export function platformNameProblem(component: string, platform: NodeJS.Platform): string | undefined {
  if (platform === 'win32') return windowsProblem(component)
  if (platform === 'darwin') return macosProblem(component)
  return undefined
}

/**
 * Returns a key that two paths share if they may be the same file on the platform. Keys are in Unicode's NFC. On
 * Windows and macOS, they ignore case. On macOS, they also ignore the characters that macOS ignores. The slashes stay,
 * so that the key of a path begins with the keys of its parents.
 */
export function comparisonKey(path: string, platform: NodeJS.Platform): string {
  const composed = NON_ASCII.test(path) ? path.normalize('NFC') : path
  if (platform === 'win32') return foldCase(composed)
  return platform === 'darwin' ? foldedKey(composed) : composed
}

/**
 * Returns a key that two paths share if any file system may treat them as one. On each platform, some file systems
 * ignore case, Unicode forms, or characters that are not shown.
 */
export function foldedKey(path: string): string {
  return foldCase(path.normalize('NFC').replace(IGNORED, ''))
}

function windowsProblem(component: string): string | undefined {
  if (WINDOWS_DEVICE.test(component)) return 'has a name that Windows reserves for a device'
  if (WINDOWS_FORBIDDEN.test(component)) return 'has a character in its name that Windows does not allow'
  if (WINDOWS_DROPPED_END.test(component)) return 'has a name ending in a dot or space, which Windows drops'
  return undefined
}

function macosProblem(component: string): string | undefined {
  if (component.includes(':')) return 'has a colon in its name, which macOS reads as a slash'
  if (component.toLowerCase() === '..namedfork') return 'has a name that macOS reserves for resource forks'
  return undefined
}

/**
 * Converts to upper case first, which also unites names that differ only in lower case (`ß` and `ss`, the two
 * lower-case sigmas).
 */
function foldCase(text: string): string {
  return text.toUpperCase().toLowerCase().normalize('NFC')
}

export type ExtractableType = 'file' | 'directory' | 'symlink'

type RefusedType = 'hard link' | 'character device' | 'block device' | 'fifo' | 'socket' | 'unknown type'

/** One entry of an archive's listing. Untrusted: only its encoding has been checked. */
export interface ArchiveEntry {
  /** Decoded; a directory's name may end in one `/`. */
  readonly name: string
  readonly type: ExtractableType | RefusedType
  /** The unpacked size in bytes. */
  readonly size: number
  /** The size in the archive in bytes; null if entries are not packed one by one, as in a tar or a git repository. */
  readonly packedSize: number | null
  /** The owner's x bit; null if the archive gives the entry no Unix mode. */
  readonly executable: boolean | null
  /** The target of a symlink; null for any other entry, and for a symlink whose target has not been read yet. */
  readonly target: string | null
}

/** Returns an ArchiveError `unsafe_archive` that names the entry, cleaned, and the rule that it breaks. */
export function unsafeEntry(name: string, problem: string): ArchiveError {
  const remedy = 'the publisher must correct the entry and publish the artifact again'
  return new ArchiveError('unsafe_archive', entrySentence(name, problem, remedy))
}

/** Returns an ArchiveError `invalid_archive` that names the entry, cleaned, and its damage. */
export function invalidEntry(name: string, problem: string, cause?: unknown): ArchiveError {
  const options = cause === undefined ? {} : { cause }
  return new ArchiveError('invalid_archive', entrySentence(name, problem, 'the publisher must pack it again'), options)
}

/** Returns an ArchiveError `invalid_archive` about the whole archive. */
export function invalidArchive(problem: string): ArchiveError {
  return new ArchiveError(
    'invalid_archive',
    `The archive is damaged or misleading (${problem}), so it was refused: the publisher must pack it again.`,
  )
}

function entrySentence(name: string, problem: string, remedy: string): string {
  return `The artifact's entry "${cleanForeignText(name, 200)}" ${problem}, so the artifact was refused: ${remedy}.`
}
