import { ArchiveError } from '../errors.ts'
import { comparePaths } from '../trust/tree-digest.ts'
import { type ArchiveEntry, type ExtractableType, unsafeEntry } from './archive-entry.ts'
import {
  type ExtractionLimits,
  verifyEntryCount,
  verifyExtractedBytes,
  verifyNameBytes,
  verifyTargetSize,
} from './archive-limits.ts'
import { parseEntryName } from './entry-names.ts'
import { PlannedFiles } from './planned-files.ts'
import { PlannedTree, type TreeNode } from './planned-tree.ts'
import { SymlinkResolver } from './symlink-policy.ts'

/** Some tools deflate a directory's empty data, to two bytes. */
const EMPTY_DEFLATE_BYTES = 2

export interface PlannedSymlink {
  readonly path: string
  readonly target: string
  /**
   * The file that the symlink leads to, through any others; null for a directory, and if the archive has nothing there.
   */
  readonly file: string | null
  /** The deepest directory that the way to the target never leaves; empty for the top. */
  readonly reach: string
}

/** Everything that an extraction creates, in this order: directories, parents before children; files; symlinks. */
export interface ExtractionPlan<Entry> {
  readonly directories: readonly string[]
  /** In the order of the tree digest. */
  readonly files: PlannedFiles<Entry>
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
 * An archive's listing, checked entry by entry as it is read, so that a small archive cannot cost more than its limits.
 * Checks the number of entries (including the directories that paths imply), their sizes and the bytes of their names.
 * Every path is safe on the platform, and no two are equal. Keeps the entries themselves: a symlink's target may be set
 * until the listing is planned.
 */
export class ArchiveListing<Entry extends ArchiveEntry> {
  readonly #rules: ExtractionRules
  readonly #tree: PlannedTree<Entry>
  readonly #symlinks: TreeNode<Entry>[] = []
  #count = 0
  #bytes = 0
  #nameBytes = 0

  constructor(rules: ExtractionRules) {
    this.#rules = rules
    this.#tree = new PlannedTree(rules.platform)
  }

  /**
   * Adds an entry. Returns its path, which is safe below any folder and next to the entries so far. Throws ArchiveError
   * `unsafe_archive`, naming the entry and the rule that it breaks, or `archive_too_large` as soon as the entries so
   * far exceed a limit.
   */
  add(entry: Entry): string {
    this.#count += 1
    verifyEntryCount(this.#count, this.#rules)
    this.#bytes += entry.size
    verifyExtractedBytes(this.#bytes, this.#rules)
    verifyTargetSize(entry)
    this.#nameBytes += entry.name.length + targetBytes(entry)
    verifyNameBytes(this.#nameBytes, this.#rules)
    const type = requireExtractable(entry.name, entry.type)
    const node = this.#tree.add(parsePath(entry, this.#rules.platform), type, entry)
    if (type === 'symlink') this.#symlinks.push(node)
    // A single top-level directory does not count, because it may be left out.
    verifyEntryCount(this.#tree.count - 1, this.#rules)
    return node.path
  }

  /**
   * Plans the extraction of all entries: a single top-level directory is left out if the rules say `flattened`,
   * symlinks stay inside, and modes have no set-uid (contract 4.3, rule 5). Pauses at each `yield`, after little work.
   * Throws ArchiveError `unsafe_archive`, `archive_too_large` above a limit, and `empty_artifact` if there is neither a
   * file nor a symlink.
   */
  *plan(): Generator<void, ExtractionPlan<Entry>> {
    verifyNotEmpty(this.#tree)
    const top = this.#rules.shape === 'flattened' ? singleDirectory(this.#tree.top) : null
    const root = top ?? this.#tree.top
    verifyEntryCount(this.#tree.count - (top === null ? 0 : 1), this.#rules)
    for (const node of root.children.values()) parseEntryName(pathBelow(root, node), this.#rules.platform)
    const directories = this.#tree.directories.filter(node => node !== top).map(node => pathBelow(root, node))
    yield
    const files = yield* this.#planFiles(root)
    const symlinks = yield* this.#planSymlinks(root)
    let bytes = 0
    for (const { size } of files.entries()) bytes += size
    return { files, symlinks, bytes, directories, flattened: top?.name ?? null }
  }

  /** Plans the files, in tree order. */
  *#planFiles(root: TreeNode<Entry>): Generator<void, PlannedFiles<Entry>> {
    const nodes: FileNode<Entry>[] = []
    for (const node of nodesInOrder(root)) {
      if (isFile(node)) nodes.push(node)
      yield
    }
    return new PlannedFiles({
      length: nodes.length,
      entryAt: place => (nodes[place] as FileNode<Entry>).entry,
      at: place => {
        const node = nodes[place] as FileNode<Entry>
        const { entry } = node
        return { path: pathBelow(root, node), mode: fileMode(entry), entry, place }
      },
    })
  }

  *#planSymlinks(root: TreeNode<Entry>): Generator<void, PlannedSymlink[]> {
    const resolver = new SymlinkResolver(root, this.#rules.platform)
    for (const node of this.#symlinks) resolver.add(node, targetOf(node))
    const symlinks: PlannedSymlink[] = []
    for (const node of this.#symlinks) {
      const { end, reach } = resolver.resolve(node)
      const file = end?.type === 'file' ? pathBelow(root, end) : null
      symlinks.push({ path: pathBelow(root, node), target: targetOf(node), file, reach: pathBelow(root, reach) })
      yield
    }
    return symlinks
  }
}

/** Ignores set-uid and every other mode bit of the archive (contract 4.3, rule 5). */
export function fileMode({ executable }: Pick<ArchiveEntry, 'executable'>): 0o644 | 0o755 {
  return executable ? 0o755 : 0o644
}

/** Returns the type if it is one that is extracted; otherwise throws ArchiveError `unsafe_archive`. */
export function requireExtractable(name: string, type: string): ExtractableType {
  if (type === 'file' || type === 'directory' || type === 'symlink') return type
  throw unsafeEntry(name, `is a ${type}, not a file, directory or symlink`)
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

/** A target that is still to be read has the entry's size. */
function targetBytes({ type, target, size }: ArchiveEntry): number {
  return type === 'symlink' ? (target?.length ?? size) : 0
}

function targetOf({ entry }: TreeNode<ArchiveEntry>): string {
  return entry?.target ?? ''
}

type FileNode<Entry> = TreeNode<Entry> & { readonly entry: Entry }

function isFile<Entry>(node: TreeNode<Entry>): node is FileNode<Entry> {
  return node.type === 'file' && node.entry !== null
}

function verifyNotEmpty({ count, directories }: PlannedTree<unknown>): void {
  if (count > directories.length) return
  throw new ArchiveError(
    'empty_artifact',
    'The archive contains no files, so it was refused: the publisher must publish a version with its files.',
  )
}

function singleDirectory<Entry>(top: TreeNode<Entry>): TreeNode<Entry> | null {
  const [only = null, another] = top.children.values()
  return another === undefined && only?.type === 'directory' ? only : null
}

/**
 * Yields each directory before its contents, and these by name: the order of the tree digest, without comparing whole
 * paths.
 */
function* nodesInOrder<Entry>(root: TreeNode<Entry>): Generator<TreeNode<Entry>> {
  // Not by recursion: a generator in a generator costs a step for each level and node.
  const rest = [lastFirst(root)]
  for (let siblings = rest.at(-1); siblings !== undefined; siblings = rest.at(-1)) {
    const node = siblings.pop()
    if (node === undefined) rest.pop()
    else {
      yield node
      if (node.type === 'directory') rest.push(lastFirst(node))
    }
  }
}

function lastFirst<Entry>({ children }: TreeNode<Entry>): TreeNode<Entry>[] {
  return [...children.values()].sort((a, b) => comparePaths(b.name, a.name))
}

function pathBelow(root: TreeNode, node: TreeNode): string {
  return root.depth === 0 ? node.path : node.path.slice(root.path.length + 1)
}
