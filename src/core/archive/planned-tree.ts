import { randomInt } from 'node:crypto'
import { HashIndex, type HashKey, halfSipHash, NumberColumn, PackedTexts } from '../columns.ts'
import { ArchiveError } from '../errors.ts'
import { cleanForeignText } from '../text.ts'
import { comparePaths } from '../trust/tree-digest.ts'

/** The number of a node in its tree. */
export type TreeNode = number

/** The archive's top, which has no name and is its own parent. */
export const TOP: TreeNode = 0

const TYPES: readonly ExtractableType[] = ['directory', 'file', 'symlink']
/** Stands for no child, and for the entry of a directory that is so far only implied by the paths below it. */
const NONE = -1
const WORD = 2 ** 32

/** The type and the number of an entry that an archive lists. */
interface Listed {
  readonly type: ExtractableType
  readonly entry: number
}

/**
 * The tree that an extraction will create. Refuses entries that could not exist next to each other: two equal names, a
 * file that is also a directory, and anything below a file or symlink. Names are equal if the platform may treat them
 * as one name. Nodes are rows of columns, not objects: the garbage collector would copy all objects of a large archive,
 * and then double the room for new ones.
 */
export class PlannedTree {
  /** All directories except the top, parents before their children. */
  readonly directories: TreeNode[] = []
  readonly #platform: NodeJS.Platform
  readonly #names = new PackedTexts()
  readonly #parents = new NumberColumn('int32')
  readonly #types = new NumberColumn('int32')
  readonly #entries = new NumberColumn('int32')
  /** The last child of each directory. The next sibling of the last child is the first child. */
  readonly #lastChildren = new NumberColumn('int32')
  readonly #nextSiblings = new NumberColumn('int32')
  /** Finds a node by its parent and comparison key. */
  readonly #index = new HashIndex()
  /** Finds an entered directory by its path, so that the depth of the directory costs nothing. */
  readonly #known = new HashIndex()
  readonly #key: HashKey = [randomInt(WORD), randomInt(WORD)]
  /** The directory that was entered last: most entries are in the same directory as the previous entry. */
  #entered = { directory: TOP, path: '' }
  /** The directory paths that have been needed so far. All paths below a directory share the text of its path. */
  readonly #paths = new Map<TreeNode, string>([[TOP, '']])

  constructor(platform: NodeJS.Platform) {
    this.#platform = platform
    this.#addRow(TOP, '', { type: 'directory', entry: NONE })
  }

  /** The number of files, directories and symlinks, listed and implied, without the top. */
  get count(): number {
    return this.#parents.length - 1
  }

  /**
   * Adds a listed entry and the directories that its path implies. Throws ArchiveError `unsafe_archive` for an entry
   * that cannot exist next to the earlier ones.
   */
  add(path: string, listed: Listed): TreeNode {
    const nameAt = path.lastIndexOf('/') + 1
    const parent = nameAt === 0 ? TOP : this.#enter(path.slice(0, nameAt - 1), path)
    const name = path.slice(nameAt)
    const there = this.find(parent, name)
    return there === undefined ? this.#create(parent, name, listed) : this.#unite(there, path, listed)
  }

  /** Returns a directory's child with this name, or with a name that the platform may treat as equal. */
  find(directory: TreeNode, name: string): TreeNode | undefined {
    const key = this.#keyOf(name)
    const isIt = (node: TreeNode): boolean =>
      this.parentOf(node) === directory && this.#keyOf(this.nameOf(node)) === key
    return this.#index.find(halfSipHash(this.#key, directory, key), isIt)
  }

  /** Returns the children of a directory in the order in which they were added. */
  childrenOf(directory: TreeNode): readonly TreeNode[] {
    const children: TreeNode[] = []
    const last = this.#lastChildren.at(directory)
    if (last === NONE) return children
    for (let child = this.#nextSiblings.at(last); child !== last; child = this.#nextSiblings.at(child))
      children.push(child)
    return [...children, last]
  }

  nameOf(node: TreeNode): string {
    return this.#names.at(node)
  }

  parentOf(node: TreeNode): TreeNode {
    return this.#parents.at(node)
  }

  typeOf(node: TreeNode): ExtractableType {
    return TYPES[this.#types.at(node)] as ExtractableType
  }

  /** The number of the entry that lists a file or symlink. */
  entryOf(node: TreeNode): number {
    return this.#entries.at(node)
  }

  /** Returns the path from the archive's top. */
  pathOf(node: TreeNode): string {
    const known = this.#paths.get(node)
    if (known !== undefined) return known
    const parent = this.parentOf(node)
    const path = parent === TOP ? this.nameOf(node) : `${this.pathOf(parent)}/${this.nameOf(node)}`
    if (this.typeOf(node) === 'directory') this.#paths.set(node, path)
    return path
  }

  /** Returns the path from a directory that contains the node; empty for the directory itself. */
  pathBelow(directory: TreeNode, node: TreeNode): string {
    return directory === TOP ? this.pathOf(node) : this.pathOf(node).slice(this.pathOf(directory).length + 1)
  }

  /**
   * Yields everything below a directory: each directory before its contents, and the contents by name. This is the
   * order of the tree digest, found without comparing whole paths.
   */
  *inOrder(directory: TreeNode): Generator<TreeNode> {
    // Not recursive: a generator inside a generator costs a step for each level and node.
    const rest = [this.#lastFirst(directory)]
    for (let siblings = rest.at(-1); siblings !== undefined; siblings = rest.at(-1)) {
      const node = siblings.pop()
      if (node === undefined) rest.pop()
      else {
        yield node
        if (this.typeOf(node) === 'directory') rest.push(this.#lastFirst(node))
      }
    }
  }

  #lastFirst(directory: TreeNode): TreeNode[] {
    const named = this.childrenOf(directory).map(node => ({ node, name: this.nameOf(node) }))
    return named.sort((a, b) => comparePaths(b.name, a.name)).map(({ node }) => node)
  }

  /**
   * Returns the directory at `path`; creates it and its parents if necessary. `below` is the path of the entry that
   * needs the directory.
   */
  #enter(path: string, below: string): TreeNode {
    if (this.#entered.path === path) return this.#entered.directory
    const hash = halfSipHash(this.#key, TOP, path)
    const known = this.#known.find(hash, node => this.pathOf(node) === path)
    const directory = known ?? this.#enterFirst(path, below)
    if (known === undefined) this.#known.add(hash, directory)
    this.#entered = { directory, path }
    return directory
  }

  #enterFirst(path: string, below: string): TreeNode {
    const nameAt = path.lastIndexOf('/') + 1
    const parent = nameAt === 0 ? TOP : this.#enter(path.slice(0, nameAt - 1), below)
    return this.#enterChild(parent, path.slice(nameAt), below)
  }

  #enterChild(parent: TreeNode, name: string, below: string): TreeNode {
    const there = this.find(parent, name)
    if (there === undefined) return this.#create(parent, name, { type: 'directory', entry: NONE })
    const type = this.typeOf(there)
    if (type !== 'directory') throw unsafeEntry(below, `is below "${this.pathOf(there)}", which is a ${type}`)
    if (this.nameOf(there) === name) return there
    throw unsafeEntry(below, `is in "${name}", which is the same name as "${this.pathOf(there)}" on this platform`)
  }

  #create(parent: TreeNode, name: string, listed: Listed): TreeNode {
    const node = this.#addRow(parent, name, listed)
    this.#index.add(halfSipHash(this.#key, parent, this.#keyOf(name)), node)
    const last = this.#lastChildren.at(parent)
    if (last !== NONE) {
      this.#nextSiblings.set(node, this.#nextSiblings.at(last))
      this.#nextSiblings.set(last, node)
    }
    this.#lastChildren.set(parent, node)
    if (listed.type === 'directory') this.directories.push(node)
    return node
  }

  #addRow(parent: TreeNode, name: string, { type, entry }: Listed): TreeNode {
    const node = this.#parents.length
    this.#names.add(name)
    this.#parents.add(parent)
    this.#types.add(TYPES.indexOf(type))
    this.#entries.add(entry)
    this.#lastChildren.add(NONE)
    this.#nextSiblings.add(node)
    return node
  }

  /**
   * Completes an implied directory, because a directory may be listed after its children. Refuses any other entry whose
   * name is taken.
   */
  #unite(there: TreeNode, path: string, { type, entry }: Listed): TreeNode {
    const own = this.pathOf(there)
    if (own !== path) throw unsafeEntry(path, `has the same name as "${own}" on this platform`)
    const ownType = this.typeOf(there)
    if (ownType !== type) throw unsafeEntry(path, `is both a ${ownType} and a ${type}`)
    if (this.#entries.at(there) !== NONE) throw unsafeEntry(path, 'is listed twice')
    this.#entries.set(there, entry)
    return there
  }

  #keyOf(name: string): string {
    return comparisonKey(name, this.#platform)
  }
}

/** A file that an extraction creates. */
export interface PlannedFile {
  /**
   * Like all paths of a plan: relative, with `/` between components, and without a top-level directory that is left
   * out.
   */
  readonly path: string
  readonly mode: 0o644 | 0o755
  /** Bytes. */
  readonly size: number
  /** The number of the entry that lists the file. */
  readonly entry: number
  /** The file's number in the order of the tree digest. */
  readonly place: number
}

/** The source of a plan's files, in the order of the tree digest. */
interface PlannedSource {
  readonly length: number
  at(place: number): PlannedFile
  entryAt(place: number): number
  sizeAt(place: number): number
}

/**
 * The files of a plan, or some of them. A file is an object only while it is used, because an archive may have many
 * files.
 */
export class PlannedFiles implements Iterable<PlannedFile> {
  readonly #source: PlannedSource
  readonly #places: Uint32Array<ArrayBuffer>

  constructor(source: PlannedSource, places = Uint32Array.from({ length: source.length }, (_, place) => place)) {
    this.#source = source
    this.#places = places
  }

  get length(): number {
    return this.#places.length
  }

  /** Returns the files that pass the test. */
  filter(test: (file: PlannedFile) => boolean): PlannedFiles {
    return this.#of(this.#places.filter(place => test(this.#source.at(place))))
  }

  /** Returns the files whose entries pass the test. */
  filterByEntry(test: (entry: number) => boolean): PlannedFiles {
    return this.#of(this.#places.filter(place => test(this.#source.entryAt(place))))
  }

  /** Returns the same files, ordered by the numbers that `numberOf` returns for their entries, smallest first. */
  sortedBy(numberOf: (entry: number) => number): PlannedFiles {
    const numberAt = (place: number): number => numberOf(this.#source.entryAt(place))
    return this.#of(this.#places.toSorted((a, b) => numberAt(a) - numberAt(b)))
  }

  /** Returns the files from position `start` up to, but not including, position `end`. */
  slice(start: number, end: number): PlannedFiles {
    return this.#of(this.#places.subarray(start, end))
  }

  /** Yields the number of each file's entry. */
  *entries(): Generator<number, undefined> {
    for (const place of this.#places) yield this.#source.entryAt(place)
  }

  /** Yields the size of each file in bytes. */
  *sizes(): Generator<number, undefined> {
    for (const place of this.#places) yield this.#source.sizeAt(place)
  }

  *[Symbol.iterator](): Generator<PlannedFile, undefined> {
    for (const place of this.#places) yield this.#source.at(place)
  }

  #of(places: Uint32Array<ArrayBuffer>): PlannedFiles {
    return new PlannedFiles(this.#source, places)
  }
}

const WINDOWS_DEVICE = /^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(?:\.|$)/i
const WINDOWS_FORBIDDEN = /[<>:"|?*]/
const WINDOWS_DROPPED_END = /[. ]$/
const MACOS_IGNORED = /\p{Default_Ignorable_Code_Point}/gu
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
  if (platform === 'darwin') return foldCase(composed.replace(MACOS_IGNORED, ''))
  return composed
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
  /** The owner's x bit. */
  readonly executable: boolean
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
