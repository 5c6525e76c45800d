import { ArchiveError } from '../errors.ts'
import { type ArchiveEntry, type ExtractableType, unsafeEntry } from './archive-entry.ts'
import { type ExtractionLimits, verifyDeclaredSizes, verifyEntryCount } from './archive-limits.ts'
import { parseEntryName } from './entry-names.ts'
import { PlannedTree } from './planned-tree.ts'
import { type PlannedSymlink, verifySymlink } from './symlink-policy.ts'

/** Some tools deflate a directory's empty data, to two bytes. */
const EMPTY_DEFLATE_BYTES = 2

export interface PlannedFile<Entry> {
  /** Relative, `/` between components, flattened; like every path of a plan. */
  readonly path: string
  readonly mode: 0o644 | 0o755
  readonly entry: Entry
}

/** Everything that an extraction creates, in this order: directories, parents before children; files; symlinks. */
export interface ExtractionPlan<Entry> {
  readonly directories: readonly string[]
  readonly files: readonly PlannedFile<Entry>[]
  readonly symlinks: readonly PlannedSymlink[]
  /** Bytes of all files. */
  readonly bytes: number
  /** Name of the single top-level directory that is left out, or null. */
  readonly flattened: string | null
}

interface NamedEntry<Entry> {
  path: string
  readonly type: ExtractableType
  readonly entry: Entry
}

/** What an extraction must respect. */
export interface ExtractionRules extends ExtractionLimits {
  /** The platform whose names must be safe. */
  readonly platform: NodeJS.Platform
  /** Whether a single top-level directory is left out, or everything stays where the archive has it. */
  readonly shape: 'flattened' | 'as packed'
}

/**
 * Plans the extraction of an archive's whole listing: a single top-level directory left out where the rules say
 * `flattened`, every path safe on the platform before and after that, no two equal, symlinks that stay inside, modes
 * without set-uid (contract 4.3, rule 5). Throws ArchiveError `unsafe_archive` naming the entry and the rule,
 * `archive_too_large` above a limit, `empty_artifact` when there is neither a file nor a symlink.
 */
export function planExtraction<Entry extends ArchiveEntry>(
  entries: readonly Entry[],
  rules: ExtractionRules,
): ExtractionPlan<Entry> {
  const { platform } = rules
  verifyDeclaredSizes(entries, rules)
  const named = entries.map(entry => ({
    path: parsePath(entry, platform),
    type: requireExtractable(entry.name, entry.type),
    entry,
  }))
  verifyNotEmpty(named)
  const flattened = rules.shape === 'flattened' ? singleTopLevelDirectory(named) : null
  const kept = flattened === null ? named : flatten(named, flattened, platform)
  const tree = buildTree(kept, platform)
  verifyEntryCount(tree.directories.length, rules)
  return { ...contentsOf(kept, tree), directories: tree.directories, flattened }
}

/** The type, where it is one that is extracted; else throws ArchiveError `unsafe_archive`. */
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

function verifyNotEmpty(named: readonly NamedEntry<ArchiveEntry>[]): void {
  if (named.some(({ type }) => type !== 'directory')) return
  throw new ArchiveError(
    'empty_artifact',
    'The archive contains no files: nothing was installed; the publisher must publish a version with its files.',
  )
}

function singleTopLevelDirectory(named: readonly NamedEntry<ArchiveEntry>[]): string | null {
  let top: string | null = null
  for (const { path, type } of named) {
    const slash = path.indexOf('/')
    if (slash === -1 && type !== 'directory') return null
    const first = slash === -1 ? path : path.slice(0, slash)
    if (top !== null && top !== first) return null
    top = first
  }
  return top
}

function flatten<Entry extends ArchiveEntry>(
  named: readonly NamedEntry<Entry>[],
  top: string,
  platform: NodeJS.Platform,
): NamedEntry<Entry>[] {
  verifyListedOnce(named, top)
  const below = named.filter(({ path }) => path !== top)
  // Not copied: copies of a large listing would take megabytes.
  for (const entry of below) entry.path = parseEntryName(entry.path.slice(top.length + 1), platform)
  return below
}

function verifyListedOnce(named: readonly NamedEntry<ArchiveEntry>[], top: string): void {
  if (named.filter(({ path }) => path === top).length > 1) throw unsafeEntry(top, 'is listed twice')
}

function buildTree(named: readonly NamedEntry<ArchiveEntry>[], platform: NodeJS.Platform): PlannedTree {
  const tree = new PlannedTree(platform)
  for (const { path, type } of named) tree.add(path, type)
  return tree
}

function contentsOf<Entry extends ArchiveEntry>(
  named: readonly NamedEntry<Entry>[],
  tree: PlannedTree,
): Pick<ExtractionPlan<Entry>, 'files' | 'symlinks' | 'bytes'> {
  const files: PlannedFile<Entry>[] = []
  const symlinks: PlannedSymlink[] = []
  let bytes = 0
  for (const { path, type, entry } of named) {
    if (type === 'file') {
      files.push({ path, mode: entry.executable ? 0o755 : 0o644, entry })
      bytes += entry.size
    } else if (type === 'symlink') {
      const symlink = { path, target: entry.target ?? '' }
      verifySymlink(symlink, at => tree.typeAt(at))
      symlinks.push(symlink)
    }
  }
  return { files, symlinks, bytes }
}
