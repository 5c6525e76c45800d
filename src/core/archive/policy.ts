import { isAscii } from 'node:buffer'
import { ArchiveError } from '../errors.ts'
import { isBelow, MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_LEVELS } from '../identifiers.ts'
import {
  type ArchiveEntry,
  type ExtractableType,
  PlannedTree,
  platformNameProblem,
  type TreeNode,
  unsafeEntry,
} from './planned-tree.ts'

/** Some tools deflate the empty data of a directory to two bytes. */
const EMPTY_DEFLATE_BYTES = 2

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
}

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
  readonly files: readonly PlannedFile[]
  readonly symlinks: readonly PlannedSymlink[]
  /** Bytes of all files. */
  readonly bytes: number
  /** The name of the single top-level directory that is left out, or null. */
  readonly flattened: string | null
  /** The names of top-level entries that are not extracted, if any; see `PlannedTree.removeStrays`. */
  readonly strays?: readonly string[]
  /** True if the archive gives no file a Unix mode, so that none becomes executable. */
  readonly lacksModes?: true
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
  readonly #sizes: number[] = []
  readonly #modes: PlannedFile['mode'][] = []
  readonly #symlinks: TreeNode[] = []
  /** The targets of symlinks, by the numbers of their entries. */
  readonly #targets = new Map<number, string>()
  #bytes = 0
  #nameBytes = 0
  #lacksModes = true

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
    this.#sizes.push(entry.size)
    this.#modes.push(fileMode(entry))
    if (type === 'file' && entry.executable !== null) this.#lacksModes = false
    if (type === 'symlink') this.#symlinks.push(node)
    if (entry.target !== null) this.setTarget(number, entry.target)
    // A single top-level directory may be left out, so one node is not counted yet.
    verifyEntryCount(this.#tree.count - 1, this.#rules)
    return path
  }

  /** Counts an entry for the archive's own top, such as `./`, which an extraction does not create. */
  addTop(): void {
    this.#sizes.push(0)
    this.#modes.push(0o644)
    verifyEntryCount(this.#sizes.length, this.#rules)
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
    const strays = this.#rules.shape === 'flattened' ? tree.removeStrays() : []
    verifyNotEmpty(tree)
    const top = this.#rules.shape === 'flattened' ? singleDirectory(tree) : null
    const root = top ?? tree.top
    verifyEntryCount(tree.count - (top === null ? 0 : 1), this.#rules)
    for (const { name } of root.children.values()) parseEntryName(name, this.#rules.platform)
    const pathOf = ({ path }: TreeNode): string => (top === null ? path : path.slice(top.path.length + 1))
    const [directories, files]: [string[], PlannedFile[]] = [[], []]
    let bytes = 0
    for (const node of tree.inOrder(root)) {
      if (node.type === 'directory') directories.push(pathOf(node))
      if (node.type === 'file') {
        const file = this.#planFile(node, pathOf(node))
        files.push(file)
        bytes += file.size
      }
      yield
    }
    const symlinks = yield* this.#planSymlinks(root, pathOf, isBelow(strays))
    const leftOut = strays.length === 0 ? {} : { strays }
    const modes = this.#lacksModes ? { lacksModes: true as const } : {}
    return { files, symlinks, bytes, directories, flattened: top?.name ?? null, ...modes, ...leftOut }
  }

  #planFile(node: TreeNode, path: string): PlannedFile {
    const entry = node.entry as number
    const mode = this.#modes[entry] as PlannedFile['mode']
    return { path, mode, size: this.#sizes[entry] as number, entry }
  }

  *#planSymlinks(
    root: TreeNode,
    pathOf: (node: TreeNode) => string,
    isLeftOut: (path: string) => boolean,
  ): Generator<void, PlannedSymlink[]> {
    const targetOf = (symlink: TreeNode): string => this.#targets.get(symlink.entry as number) ?? ''
    const resolver = new SymlinkResolver({ tree: this.#tree, root, platform: this.#rules.platform, targetOf })
    const symlinks: PlannedSymlink[] = []
    for (const node of this.#symlinks.filter(({ path }) => !isLeftOut(path))) {
      const { end, reach } = resolver.resolve(node)
      const file = end?.type === 'file' ? pathOf(end) : null
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

function verifyNotEmpty({ hasNoFiles }: PlannedTree): void {
  if (!hasNoFiles) return
  throw new ArchiveError(
    'empty_artifact',
    'The artifact contains no files, so it was refused: the publisher must publish a version with its files.',
  )
}

function singleDirectory({ top }: PlannedTree): TreeNode | null {
  const [only, another] = top.children.values()
  return another === undefined && only?.type === 'directory' ? only : null
}

/** Several times the average path length in real archives, even in those with the longest paths. */
const NAME_BYTES_PER_ENTRY = 256
/** Lets a few entries have the longest names. */
const SPARE_NAME_BYTES = 1024 * 1024

/** For PAX headers and long names in a tar; most members need none. */
const EXTENSION_BYTES_PER_ENTRY = 1024
const SPARE_EXTENSION_BYTES = 1024 * 1024

/** The operator's limits for an extracted archive: the inputs `max-extracted-bytes` and `max-entries`. */
export interface ExtractionLimits {
  readonly maxExtractedBytes: number
  readonly maxEntries: number
}

/**
 * Throws ArchiveError `archive_too_large` if an archive has more entries than `max-entries`. The count may include the
 * directories that paths imply.
 */
export function verifyEntryCount(count: number, limits: ExtractionLimits): void {
  if (count <= limits.maxEntries) return
  throw tooLarge(
    `The artifact has at least ${count} entries, more than max-entries allows (${limits.maxEntries})`,
    'max-entries',
  )
}

/** Throws ArchiveError `archive_too_large` if an archive's entries together declare more than `max-extracted-bytes`. */
export function verifyExtractedBytes(bytes: number, limits: ExtractionLimits): void {
  if (bytes <= limits.maxExtractedBytes) return
  throw tooLarge(
    `The artifact unpacks to at least ${bytes} bytes, more than max-extracted-bytes allows (${limits.maxExtractedBytes})`,
    'max-extracted-bytes',
  )
}

/**
 * Limits the names and symlink targets of a listing, because all of them are in memory at once. Throws ArchiveError
 * `archive_too_large` if together, in UTF-8, they exceed 1 MiB plus 256 bytes for each entry that `max-entries` allows.
 */
function verifyNameBytes(bytes: number, { maxEntries }: ExtractionLimits): void {
  const most = maxEntries * NAME_BYTES_PER_ENTRY + SPARE_NAME_BYTES
  if (bytes <= most) return
  const found = `The artifact's names and symlink targets take more than the ${most} bytes`
  throw tooLarge(`${found} that max-entries (${maxEntries}) allows for them`, 'max-entries')
}

/**
 * Throws ArchiveError `archive_too_large` if the PAX headers and long names of a tar, each with its header block,
 * together exceed 1 MiB plus 1 KiB for each entry that `max-entries` allows.
 */
export function verifyExtensionBytes(bytes: number, { maxEntries }: ExtractionLimits): void {
  const most = maxEntries * EXTENSION_BYTES_PER_ENTRY + SPARE_EXTENSION_BYTES
  if (bytes <= most) return
  const found = `The artifact has more than the ${most} bytes of PAX headers and long names`
  throw tooLarge(`${found} that max-entries (${maxEntries}) allows`, 'max-entries')
}

/** Throws ArchiveError `unsafe_archive` for a symlink with more than 4,096 bytes of data, which are its target. */
function verifyTargetSize({ name, type, size }: ArchiveEntry): void {
  if (type !== 'symlink' || size <= MAX_PATH_BYTES) return
  throw unsafeEntry(name, `is a symlink with a target of more than ${MAX_PATH_BYTES} bytes`)
}

function tooLarge(found: string, input: 'max-entries' | 'max-extracted-bytes'): ArchiveError {
  return new ArchiveError(
    'archive_too_large',
    `${found}, so the artifact was refused: raise the input ${input} if the artifact is meant to be that large.`,
  )
}

// `ignoreBOM` keeps a byte order mark in the text. If it were dropped, two different names could become equal.
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

const CONTROL_CHARACTER = /\p{Cc}/u
const DRIVE_LETTER = /^[A-Za-z]:/

/**
 * Decodes an entry's name as UTF-8 if the archive says so, otherwise as ASCII. Throws ArchiveError `unsafe_archive` for
 * other bytes.
 */
export function decodeEntryName(bytes: Buffer, encoding: 'utf-8' | 'ascii'): string {
  if (isAscii(bytes)) return bytes.toString('latin1')
  const shown = bytes.toString('utf8')
  if (encoding === 'ascii')
    throw unsafeEntry(
      shown,
      'has a non-ASCII name that is not marked as UTF-8 (bsdtar, 7z and Python mark such names, zip does not)',
    )
  const name = decodeUtf8(bytes)
  if (name === undefined) throw unsafeEntry(shown, 'has a name that is not valid UTF-8')
  return name
}

/** Decodes the target of the symlink `name`. Throws ArchiveError `unsafe_archive` if it is not valid UTF-8. */
export function decodeTarget(bytes: Buffer, name: string): string {
  const target = decodeUtf8(bytes)
  if (target === undefined) throw unsafeEntry(name, 'has a symlink target that is not valid UTF-8')
  return target
}

function decodeUtf8(bytes: Buffer): string | undefined {
  try {
    return strictUtf8.decode(bytes)
  } catch {
    return undefined
  }
}

/**
 * Returns the relative path of an entry's name, without a final `/`. Joined to a folder, the path is always below that
 * folder (contract 4.3, rule 5). Throws ArchiveError `unsafe_archive` for an empty name or component, `.` and `..`, a
 * leading `/`, a drive letter, backslashes, lone surrogates, and NUL and other control characters. Also refuses more
 * than 255 bytes in a component, 4,096 bytes or 64 levels in total, and names that the platform does not keep as they
 * are written.
 */
export function parseEntryName(name: string, platform: NodeJS.Platform): string {
  const path = name.endsWith('/') ? name.slice(0, -1) : name
  const components = path.split('/')
  const problem = pathProblem(path, components) ?? componentsProblem(components, platform)
  if (problem !== undefined) throw unsafeEntry(name, problem)
  return path
}

function pathProblem(path: string, components: string[]): string | undefined {
  if (path.startsWith('/')) return 'has an absolute path'
  if (path === '') return 'has an empty name'
  if (DRIVE_LETTER.test(path)) return 'has a path that starts with a drive letter'
  if (path.includes('\\')) return 'has a backslash in its path'
  if (!path.isWellFormed()) return 'has a path that is not valid Unicode'
  if (CONTROL_CHARACTER.test(path)) return 'has a control character in its path'
  if (isLongerThan(path, MAX_PATH_BYTES)) return `has a path of more than ${MAX_PATH_BYTES} bytes`
  if (components.length > MAX_PATH_LEVELS) return `is more than ${MAX_PATH_LEVELS} levels deep`
  return undefined
}

function componentsProblem(components: string[], platform: NodeJS.Platform): string | undefined {
  for (const component of components) {
    const problem = componentProblem(component) ?? platformNameProblem(component, platform)
    if (problem !== undefined) return problem
  }
  return undefined
}

function componentProblem(component: string): string | undefined {
  if (component === '') return 'has an empty component in its path'
  if (component === '.' || component === '..') return `has a "${component}" in its path`
  if (isLongerThan(component, MAX_NAME_BYTES)) return `has a name of more than ${MAX_NAME_BYTES} bytes`
  return undefined
}

/** Counts bytes only if the number of UTF-16 units does not decide: each unit takes 1 to 3 bytes of UTF-8. */
function isLongerThan(text: string, maxBytes: number): boolean {
  if (text.length * 3 <= maxBytes) return false
  return text.length > maxBytes || Buffer.byteLength(text) > maxBytes
}

/** The result of following a symlink of an archive. */
interface ResolvedSymlink {
  /** The entry that the symlink leads to, through all other symlinks; null if the archive contains nothing there. */
  readonly end: TreeNode | null
  /** The deepest directory that the way to the target, including the way of each symlink on it, never leaves. */
  readonly reach: TreeNode
}

interface Resolution extends ResolvedSymlink {
  /** The number of symlinks on the way, including this one. */
  readonly hops: number
}

/** A position on the way to a target. */
interface Way {
  at: TreeNode
  reach: TreeNode
  hops: number
  /** Whether the way has reached a path, inside `at`, that the archive does not contain. */
  isDangling: boolean
}

/** As many as Linux follows. */
const MAX_HOPS = 40
/** Does not say how many symlinks follow: the limit may be exceeded at any symlink of the chain. */
const IN_LONG_CHAIN = `in a chain of more than ${MAX_HOPS} symlinks`
const PYTHON = /\/python[\d.]*$/
const FORBIDDEN_CHARACTER = /[\\\p{Cc}]/u

/** A complete planned tree, and the targets of its symlinks. */
interface PlannedLinks {
  readonly tree: PlannedTree
  /** The directory that no symlink may leave. */
  readonly root: TreeNode
  readonly platform: NodeJS.Platform
  readonly targetOf: (symlink: TreeNode) => string
}

/**
 * Follows the symlinks of a planned tree in the archive's listing, never on the disk (contract 4.3, rule 5). Follows
 * each symlink only once, however many others lead through it.
 */
class SymlinkResolver {
  readonly #links: PlannedLinks
  readonly #resolved = new Map<TreeNode, Resolution | 'on the way'>()

  constructor(links: PlannedLinks) {
    this.#links = links
  }

  /**
   * Vouches for a symlink: its target is relative, has at most 4,096 bytes and 64 components, and stays inside the root
   * at every step. The way may pass through other symlinks: at most 40 with this one, and never in a loop. It may lead
   * to a path that the archive does not contain. Throws ArchiveError `unsafe_archive` for any other symlink.
   */
  resolve(symlink: TreeNode): ResolvedSymlink {
    return this.#resolve(symlink, 1)
  }

  #resolve(symlink: TreeNode, depth: number): Resolution {
    const known = this.#resolved.get(symlink)
    if (known === 'on the way') throw this.#refused(symlink, 'that is part of a loop')
    if (known !== undefined) return known
    this.#resolved.set(symlink, 'on the way')
    const resolution = this.#follow(symlink, depth)
    this.#resolved.set(symlink, resolution)
    return resolution
  }

  #follow(symlink: TreeNode, depth: number): Resolution {
    const target = this.#links.targetOf(symlink)
    const problem = targetTextProblem(target)
    if (problem !== undefined) throw this.#refused(symlink, problem)
    const { parent } = symlink
    const way: Way = { at: parent, reach: parent, hops: depth, isDangling: false }
    for (const step of target.split('/')) {
      const stepProblem = this.#stepProblem(way, step)
      if (stepProblem !== undefined) throw this.#refused(symlink, stepProblem)
      if (way.hops > MAX_HOPS) throw this.#refused(symlink, IN_LONG_CHAIN)
    }
    return { end: way.isDangling ? null : way.at, reach: way.reach, hops: way.hops - depth + 1 }
  }

  /** Takes one step of the path, or returns why the step is refused. */
  #stepProblem(way: Way, step: string): string | undefined {
    if (way.isDangling) return this.#danglingProblem(step)
    if (way.at.type !== 'directory') return 'that uses a file as a directory'
    if (step === '' || step === '.') return undefined
    return step === '..' ? this.#upProblem(way) : this.#downProblem(way, step)
  }

  #upProblem(way: Way): string | undefined {
    if (way.at === this.#links.root) return 'that leads out of the extracted directory'
    const { parent } = way.at
    if (way.reach === way.at) way.reach = parent
    way.at = parent
    return undefined
  }

  #downProblem(way: Way, step: string): string | undefined {
    const { tree } = this.#links
    const next = tree.find(way.at, step)
    if (next === undefined) {
      way.isDangling = true
      return this.#danglingProblem(step)
    }
    if (next.name !== step) return `that spells "${next.path}" differently`
    if (next.type === 'symlink') this.#passThrough(way, next)
    else way.at = next
    return undefined
  }

  #passThrough(way: Way, symlink: TreeNode): void {
    if (way.hops >= MAX_HOPS) throw this.#refused(symlink, IN_LONG_CHAIN)
    const { end, reach, hops } = this.#resolve(symlink, way.hops + 1)
    way.hops += hops
    way.reach = commonDirectory(way.reach, reach)
    way.isDangling = end === null
    way.at = end ?? way.at
  }

  /**
   * Returns why a step on a path that the archive does not contain is unsafe; undefined if it is safe. The host may put
   * its own symlink there, and a `..` after that symlink could lead outside.
   */
  #danglingProblem(step: string): string | undefined {
    if (step === '..') return 'that goes up from a path that the archive does not contain'
    const problem = platformNameProblem(step, this.#links.platform)
    return problem === undefined ? undefined : `whose target ${problem}`
  }

  #refused(symlink: TreeNode, problem: string): Error {
    return unsafeEntry(symlink.path, `is a symlink ${problem}`)
  }
}

/** Returns the deepest directory that contains both directories, or is one of them. */
function commonDirectory(a: TreeNode, b: TreeNode): TreeNode {
  let [one, other] = [a, b]
  while (one !== other) {
    if (one.level >= other.level) one = one.parent
    else other = other.parent
  }
  return one
}

function targetTextProblem(target: string): string | undefined {
  if (target === '') return 'without a target'
  if (target.startsWith('/'))
    return PYTHON.test(target)
      ? 'to an absolute path, as in a virtual environment of Python, which must be left out and created on the host'
      : 'to an absolute path'
  if (DRIVE_LETTER.test(target)) return 'with a target that starts with a drive letter'
  if (FORBIDDEN_CHARACTER.test(target)) return 'with a backslash or control character in its target'
  if (Buffer.byteLength(target) > MAX_PATH_BYTES) return `with a target of more than ${MAX_PATH_BYTES} bytes`
  if (target.split('/', MAX_PATH_LEVELS + 1).length > MAX_PATH_LEVELS)
    return `with a target of more than ${MAX_PATH_LEVELS} components`
  return undefined
}
