import { NumberColumn } from '../columns/number-column.ts'
import { ArchiveError } from '../errors.ts'
import { type ArchiveEntry, type ExtractableType, unsafeEntry } from './archive-entry.ts'
import {
  type ExtractionLimits,
  verifyEntryCount,
  verifyExtractedBytes,
  verifyNameBytes,
  verifyTargetSize,
} from './archive-limits.ts'
import { parseEntryName } from './entry-names.ts'
import { type PlannedFile, PlannedFiles } from './planned-files.ts'
import { PlannedTree, TOP, type TreeNode } from './planned-tree.ts'
import { SymlinkResolver } from './symlink-policy.ts'

/** Some tools deflate the empty data of a directory to two bytes. */
const EMPTY_DEFLATE_BYTES = 2

export interface PlannedSymlink {
  readonly path: string
  readonly target: string
  /**
   * The file that the symlink leads to, directly or through other symlinks. Null if the symlink leads to a directory,
   * or to a path that the archive does not contain.
   */
  readonly file: string | null
  /** The path of the deepest directory that the way to the target never leaves; empty for the top. */
  readonly reach: string
}

/** Everything that an extraction creates: directories first (parents before children), then files, then symlinks. */
export interface ExtractionPlan {
  readonly directories: readonly string[]
  /** In the order of the tree digest. */
  readonly files: PlannedFiles
  readonly symlinks: readonly PlannedSymlink[]
  /** Bytes of all files. */
  readonly bytes: number
  /** The name of the single top-level directory that is left out, or null. */
  readonly flattened: string | null
}

/** The rules that an extraction must respect. */
export interface ExtractionRules extends ExtractionLimits {
  /** The platform whose names must be safe. */
  readonly platform: NodeJS.Platform
  /** Whether to leave out a single top-level directory, or to keep everything where the archive has it. */
  readonly shape: 'flattened' | 'as packed'
}

/**
 * An archive's listing, checked entry by entry as it is read, so that even a small archive cannot cost more than the
 * limits allow. Checks the number of entries (including the directories that paths imply), their sizes and the bytes of
 * their names. Every path is safe on the platform, and no two are equal. Numbers the entries from 0 in the order in
 * which they arrive.
 */
export class ArchiveListing {
  readonly #rules: ExtractionRules
  readonly #tree: PlannedTree
  readonly #sizes = new NumberColumn('float64')
  readonly #modes = new NumberColumn('int32')
  readonly #symlinks: TreeNode[] = []
  /** The targets of symlinks, by the numbers of their entries. */
  readonly #targets = new Map<number, string>()
  #bytes = 0
  #nameBytes = 0

  constructor(rules: ExtractionRules) {
    this.#rules = rules
    this.#tree = new PlannedTree(rules.platform)
  }

  /**
   * Adds an entry. Returns its path, which is safe below any folder and next to the entries so far. Throws ArchiveError
   * `unsafe_archive`, which names the entry and the rule that it breaks. Throws `archive_too_large` as soon as the
   * entries so far exceed a limit.
   */
  add(entry: ArchiveEntry): string {
    const number = this.#sizes.length
    verifyEntryCount(number + 1, this.#rules)
    this.#bytes += entry.size
    verifyExtractedBytes(this.#bytes, this.#rules)
    verifyTargetSize(entry)
    this.#nameBytes += Buffer.byteLength(entry.name) + targetBytes(entry)
    verifyNameBytes(this.#nameBytes, this.#rules)
    const type = requireExtractable(entry.name, entry.type)
    const path = parsePath(entry, this.#rules.platform)
    const node = this.#tree.add(path, { type, entry: number })
    this.#sizes.add(entry.size)
    this.#modes.add(fileMode(entry))
    if (type === 'symlink') this.#symlinks.push(node)
    if (entry.target !== null) this.setTarget(number, entry.target)
    // A single top-level directory may be left out, so one node is not counted yet.
    verifyEntryCount(this.#tree.count - 1, this.#rules)
    return path
  }

  /** Sets a symlink's target that was not known when its entry was added. `entry` is the number of that entry. */
  setTarget(entry: number, target: string): void {
    this.#targets.set(entry, target)
  }

  /**
   * Plans the extraction of all entries (contract 4.3, rule 5). Leaves out a single top-level directory if the rules
   * say `flattened`. Symlinks stay inside, and modes have no set-uid. Pauses at each `yield`, after little work. Throws
   * ArchiveError `unsafe_archive` for a symlink that `SymlinkResolver` refuses, and for a path that is unsafe without
   * its top-level directory. Throws `archive_too_large` above a limit, and `empty_artifact` if there is neither a file
   * nor a symlink.
   */
  *plan(): Generator<void, ExtractionPlan> {
    const tree = this.#tree
    verifyNotEmpty(tree)
    const top = this.#rules.shape === 'flattened' ? singleDirectory(tree) : null
    const root = top ?? TOP
    verifyEntryCount(tree.count - (top === null ? 0 : 1), this.#rules)
    for (const node of tree.childrenOf(root)) parseEntryName(tree.pathBelow(root, node), this.#rules.platform)
    const directories = tree.directories.filter(node => node !== top).map(node => tree.pathBelow(root, node))
    yield
    const files = yield* this.#planFiles(root)
    const symlinks = yield* this.#planSymlinks(root)
    let bytes = 0
    for (const size of files.sizes()) bytes += size
    return { files, symlinks, bytes, directories, flattened: top === null ? null : tree.nameOf(top) }
  }

  /** In tree order. */
  *#planFiles(root: TreeNode): Generator<void, PlannedFiles> {
    const tree = this.#tree
    const nodes = new NumberColumn('int32')
    for (const node of tree.inOrder(root)) {
      if (tree.typeOf(node) === 'file') nodes.add(node)
      yield
    }
    const entryAt = (place: number): number => tree.entryOf(nodes.at(place))
    const sizeAt = (place: number): number => this.#sizes.at(entryAt(place))
    const at = (place: number): PlannedFile => {
      const entry = entryAt(place)
      const mode = this.#modes.at(entry) as PlannedFile['mode']
      return { path: tree.pathBelow(root, nodes.at(place)), mode, size: this.#sizes.at(entry), entry, place }
    }
    return new PlannedFiles({ length: nodes.length, at, entryAt, sizeAt })
  }

  *#planSymlinks(root: TreeNode): Generator<void, PlannedSymlink[]> {
    const tree = this.#tree
    const targetOf = (symlink: TreeNode): string => this.#targets.get(tree.entryOf(symlink)) ?? ''
    const resolver = new SymlinkResolver({ tree, root, platform: this.#rules.platform, targetOf })
    const pathOf = (node: TreeNode): string => tree.pathBelow(root, node)
    const symlinks: PlannedSymlink[] = []
    for (const node of this.#symlinks) {
      const { end, reach } = resolver.resolve(node)
      const file = end !== null && tree.typeOf(end) === 'file' ? pathOf(end) : null
      symlinks.push({ path: pathOf(node), target: targetOf(node), file, reach: pathOf(reach) })
      yield
    }
    return symlinks
  }
}

/** Keeps only the owner's x bit of the archive's modes, so never set-uid (contract 4.3, rule 5). */
export function fileMode({ executable }: Pick<ArchiveEntry, 'executable'>): 0o644 | 0o755 {
  return executable ? 0o755 : 0o644
}

/** Returns the type if entries of this type are extracted; otherwise throws ArchiveError `unsafe_archive`. */
export function requireExtractable(name: string, type: string): ExtractableType {
  if (type === 'file' || type === 'directory' || type === 'symlink') return type
  throw unsafeEntry(name, `is not a file, directory or symlink (${type})`)
}

function parsePath(entry: ArchiveEntry, platform: NodeJS.Platform): string {
  if (entry.type === 'directory' && containsData(entry))
    throw unsafeEntry(entry.name, 'is a directory that contains data')
  if (entry.type !== 'directory' && entry.name.endsWith('/')) {
    throw unsafeEntry(entry.name, `is a ${entry.type} with a directory's name`)
  }
  return parseEntryName(entry.name, platform)
}

function containsData(entry: ArchiveEntry): boolean {
  return entry.size > 0 || (entry.packedSize ?? 0) > EMPTY_DEFLATE_BYTES
}

/** If the target has not been read yet, its size is the entry's size. */
function targetBytes({ type, target, size }: ArchiveEntry): number {
  if (type !== 'symlink') return 0
  return target === null ? size : Buffer.byteLength(target)
}

function verifyNotEmpty({ count, directories }: PlannedTree): void {
  if (count > directories.length) return
  throw new ArchiveError(
    'empty_artifact',
    'The artifact contains no files, so it was refused: the publisher must publish a version with its files.',
  )
}

function singleDirectory(tree: PlannedTree): TreeNode | null {
  const [only, another] = tree.childrenOf(TOP)
  return only !== undefined && another === undefined && tree.typeOf(only) === 'directory' ? only : null
}
