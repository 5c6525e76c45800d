import { HubError } from '../errors.ts'

/** The tree that a host creates from an archive. */
interface SafeTree {
  /** Returns the file at this path, where any part may be a symlink; undefined if there is no file. */
  readonly fileAt: (path: string) => ArchiveEntry | undefined
}

/**
 * Returns the tree that a host unpacks. With `flattens`, drops the top-level directory if everything is below it
 * (contract 4.3, rule 5). Throws HubError 400 for an archive that no host unpacks: for example, one that has no file,
 * an unsafe name, a symlink that leads out, a device, or two entries in one place.
 */
export function requireSafeTree(entries: readonly ArchiveEntry[], options: { flattens: boolean }): SafeTree {
  if (entries.length === 0) throw new HubError(400, 'The archive contains nothing to publish: pack the files again.')
  const tree = new EntryTree()
  for (const entry of entries) {
    if (entry.type === 'other') throw unsafe(entry.name, 'is neither a file, a directory nor a symlink')
    const path = requireSafeName(entry)
    tree.add(path, entry)
  }
  if (entries.every(({ type }) => type === 'directory'))
    throw new HubError(400, 'The archive contains no file: pack the files again.')
  const top = tree.top(options)
  const symlinks = new Symlinks(top)
  for (const node of nodesBelow(top)) symlinks.endOf(node)
  return { fileAt: path => findFile(top, symlinks, path) }
}

function findFile(top: TreeNode, symlinks: Symlinks, path: string): ArchiveEntry | undefined {
  let at: TreeNode | undefined = top
  for (const name of path.split('/')) {
    const next: TreeNode | undefined = at === undefined ? undefined : childOf(at, name)
    at = next === undefined ? undefined : symlinks.endOf(next)
  }
  return at?.type === 'file' ? at.entry : undefined
}

function* nodesBelow(node: TreeNode): Generator<TreeNode> {
  const open = [node]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    yield next
    for (const child of next.children.values()) open.push(child)
  }
}

/** Returns the path without the slash that may end a directory's name. */
function requireSafeName({ name, type }: ArchiveEntry): string {
  const path = name.replace(/\/$/, '')
  if (path === '') throw unsafe(name, 'has no name')
  if (path !== name && type !== 'directory') throw unsafe(name, `is a ${type} with a slash at the end of its name`)
  if (path.startsWith('/') || /^[A-Za-z]:/.test(path)) throw unsafe(name, 'has an absolute path')
  if (/[\\\p{Cc}]/u.test(path)) throw unsafe(name, 'has a backslash or a control character in its path')
  const parts = path.split('/', MAX_LEVELS + 1)
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) throw unsafe(name, `has a path of more than ${MAX_PATH_BYTES} bytes`)
  if (parts.length > MAX_LEVELS) throw unsafe(name, `has a path of more than ${MAX_LEVELS} levels`)
  if (parts.some(part => part === '' || part === '.' || part === '..'))
    throw unsafe(name, 'has an empty part, "." or ".." in its path')
  if (parts.some(part => Buffer.byteLength(part) > MAX_NAME_BYTES))
    throw unsafe(name, `has a name of more than ${MAX_NAME_BYTES} bytes`)
  return path
}

/** The file, directory or symlink that a host creates at one place. */
interface TreeNode {
  readonly type: ArchiveEntry['type']
  /** Undefined for the top itself. */
  readonly parent: TreeNode | undefined
  /** The children by name. Two Unicode forms of a name are one name. */
  readonly children: ReadonlyMap<string, TreeNode>
  /** Undefined for the top, and for a directory that has no entry of its own but contains other entries. */
  readonly entry: ArchiveEntry | undefined
}

interface OwnNode extends TreeNode {
  readonly children: Map<string, OwnNode>
  entry: ArchiveEntry | undefined
}

const NO_CHILDREN: Map<string, OwnNode> = new Map()

/**
 * The tree of a listing. Throws HubError 400 for two entries in one place, an entry below a file or symlink, and more
 * directories than hosts create. Takes one step for each part of each path.
 */
class EntryTree {
  readonly #top = createNode('directory', undefined)
  #count = 0

  /** Adds an entry at its path: its name without the parts that a host drops. */
  add(path: string, entry: ArchiveEntry): void {
    const names = path.split('/')
    const last = names.pop() ?? ''
    const folder = names.reduce((at, name) => this.#directory(at, name, entry), this.#top)
    const there = folder.children.get(keyOf(last))
    if (there === undefined) this.#create(folder, last, entry.type).entry = entry
    else if (there.entry === undefined && entry.type === 'directory') there.entry = entry
    else if (there.entry === undefined) throw unsafe(entry.name, 'is not a directory, but other entries are below it')
    else throw unsafe(entry.name, describeRepeat(there.entry.name, entry.name))
  }

  /**
   * Returns the top. With `flattens`, returns the directory that contains everything, if there is one: code hosts put
   * all files below one directory.
   */
  top({ flattens }: { readonly flattens: boolean }): TreeNode {
    const [only, ...others] = this.#top.children.values()
    return flattens && others.length === 0 && only?.type === 'directory' ? only : this.#top
  }

  #directory(parent: OwnNode, name: string, entry: ArchiveEntry): OwnNode {
    const there = parent.children.get(keyOf(name)) ?? this.#create(parent, name, 'directory')
    if (there.type === 'directory') return there
    throw unsafe(entry.name, `is below ${there.entry?.name}, which is not a directory`)
  }

  #create(parent: OwnNode, name: string, type: ArchiveEntry['type']): OwnNode {
    this.#count++
    if (this.#count > MAX_ENTRIES) throw tooMuch(`makes a host create more than ${MAX_ENTRIES} files and directories`)
    const node = createNode(type, parent)
    parent.children.set(keyOf(name), node)
    return node
  }
}

/** Returns the child of this name in a directory. */
function childOf(node: TreeNode, name: string): TreeNode | undefined {
  return node.children.get(keyOf(name))
}

function describeRepeat(first: string, second: string): string {
  if (first.replace(/\/$/, '') === second.replace(/\/$/, '')) return 'is in the archive twice'
  return `is the same name as ${JSON.stringify(first.slice(0, 200))} after Unicode normalization`
}

function createNode(type: ArchiveEntry['type'], parent: OwnNode | undefined): OwnNode {
  return { type, parent, children: type === 'directory' ? new Map() : NO_CHILDREN, entry: undefined }
}

function keyOf(name: string): string {
  return name.normalize('NFC')
}

const MAX_HOPS = 40
/** Linux keeps a target and the NUL at its end in one page of 4,096 bytes. */
const MAX_TARGET_BYTES = 4095
const TOO_MANY_HOPS = `leads through more than ${MAX_HOPS} symlinks`

/** The node that a path leads to, and the number of symlinks on the way. */
interface End {
  /** Undefined if the archive contains nothing there. */
  readonly node: TreeNode | undefined
  readonly hops: number
}

/** A position in a chain of symlinks: the first symlink, and the number of symlinks so far. */
interface Way {
  readonly first: ArchiveEntry
  readonly depth: number
}

/** Follows symlinks below `top`. Follows each only once, however many paths lead through it. */
class Symlinks {
  readonly #top: TreeNode
  readonly #ends = new Map<TreeNode, End | 'on the way'>()

  constructor(top: TreeNode) {
    this.#top = top
  }

  /**
   * Returns the final target of a symlink (undefined if the archive does not contain it), or the node itself if it is
   * not a symlink. Throws HubError 400 for a symlink that no host creates. For example, its target is absolute or too
   * long, it is part of a loop, or it leads out of the tree, through a file, through more than 40 symlinks, or up from
   * a path that the archive does not contain.
   */
  endOf(node: TreeNode): TreeNode | undefined {
    return node.type === 'symlink' ? this.#resolve(node, { first: node.entry as ArchiveEntry, depth: 1 }).node : node
  }

  #resolve(symlink: TreeNode, way: Way): End {
    const known = this.#ends.get(symlink)
    const entry = symlink.entry as ArchiveEntry
    if (known === 'on the way') throw refused(entry, 'is part of a loop')
    if (way.depth > MAX_HOPS) throw refused(way.first, TOO_MANY_HOPS)
    if (known !== undefined) return known
    this.#ends.set(symlink, 'on the way')
    const end = this.#follow(symlink, entry, way)
    this.#ends.set(symlink, end)
    return end
  }

  #follow({ parent }: TreeNode, entry: ArchiveEntry, { first, depth }: Way): End {
    let at: TreeNode | undefined = parent
    let hops = 1
    for (const step of stepsOf(entry)) {
      if (at === undefined && step === '..')
        throw refused(entry, 'goes up from a path that the archive does not contain')
      if (at !== undefined && at.type !== 'directory') throw refused(entry, 'uses a file as a directory')
      if (at === undefined || step === '' || step === '.') continue
      if (step === '..' && (at === this.#top || at.parent === undefined))
        throw refused(entry, 'leads out of the archive')
      at = step === '..' ? at.parent : childOf(at, step)
      if (at?.type !== 'symlink') continue
      const end = this.#resolve(at, { first, depth: depth + hops })
      at = end.node
      hops += end.hops
      if (hops > MAX_HOPS) throw refused(entry, TOO_MANY_HOPS)
    }
    return { node: at, hops }
  }
}

/** Splits a target into its steps, after cheap checks of its text. */
function stepsOf(entry: ArchiveEntry): string[] {
  const { target } = entry
  if (target === undefined || Buffer.byteLength(target) > MAX_TARGET_BYTES)
    throw unsafe(entry.name, `is a symlink to a path of more than ${MAX_TARGET_BYTES} bytes`)
  if (target === '') throw unsafe(entry.name, 'is a symlink to an empty path')
  if (/^\/|^[A-Za-z]:/.test(target)) throw refused(entry, 'is not a relative path')
  if (/[\\\p{Cc}]/u.test(target)) throw refused(entry, 'contains a backslash or a control character')
  const steps = target.split('/', MAX_LEVELS + 1)
  if (steps.length > MAX_LEVELS) throw refused(entry, `has more than ${MAX_LEVELS} levels`)
  return steps
}

function refused({ name, target = '' }: ArchiveEntry, problem: string): Error {
  return unsafe(name, `is a symlink to ${JSON.stringify(target.slice(0, 100))}, which ${problem}`)
}

/** The most entries that hosts unpack by default (docs/contracts.md, "Limits, timeouts, retries"). */
export const MAX_ENTRIES = 100_000
export const MAX_EXTRACTED_BYTES = 2 * 1024 * 1024 * 1024
export const MAX_ARCHIVE_BYTES = 512 * 1024 * 1024
export const MAX_PATH_BYTES = 4096
const MAX_NAME_BYTES = 255
/** The largest number of levels in a path, or in a symlink's target. */
const MAX_LEVELS = 64

/** The hosts' limit for all names and symlink targets together: 256 bytes for each possible entry, plus 1 MiB. */
const MAX_NAME_BYTES_TOGETHER = 256 * MAX_ENTRIES + 1024 * 1024

/** An entry of a ZIP or tar. `name` is unchanged: a directory's name may end with a slash. */
export interface ArchiveEntry {
  readonly name: string
  readonly type: 'file' | 'directory' | 'symlink' | 'other'
  /** The target of a symlink; undefined if the target is longer than a path may be. */
  readonly target?: string
}

/** Collects the entries of an archive while it is read. */
export class EntryList {
  readonly entries: ArchiveEntry[] = []
  #nameBytes = 0

  /** Throws HubError 400 for more entries or longer names than hosts unpack, before they fill the memory. */
  add(entry: ArchiveEntry): void {
    this.#nameBytes += Buffer.byteLength(entry.name) + Buffer.byteLength(entry.target ?? '')
    if (this.entries.length >= MAX_ENTRIES) throw tooMuch(`has more than ${MAX_ENTRIES} entries`)
    if (this.#nameBytes > MAX_NAME_BYTES_TOGETHER)
      throw tooMuch(`has more than ${MAX_NAME_BYTES_TOGETHER} bytes of names and symlink targets`)
    this.entries.push(entry)
  }
}

/** The refusal of an archive for one of its entries. */
export function unsafe(name: string, problem: string): HubError {
  return new HubError(
    400,
    `Hosts refuse this archive: ${JSON.stringify(name.slice(0, 200))} ${problem}. Correct the entry and pack the archive again.`,
  )
}

/** The refusal of an archive that is larger than hosts unpack. */
export function tooMuch(excess: string): HubError {
  return new HubError(400, `The archive ${excess}, so hosts refuse it by default: remove some files.`)
}

/** The bytes that hosts allow for an entry's headers, padding and long names, and for the zeros at the end of a tar. */
const BYTES_PER_ENTRY = 4096
const TRAILER_BYTES = 1024 * 1024
const MAX_TAR_BYTES = MAX_EXTRACTED_BYTES + BYTES_PER_ENTRY * MAX_ENTRIES + TRAILER_BYTES

/** Passes on the bytes of a tar. Throws HubError 400 if the tar is longer than any that hosts unpack by default. */
export async function* boundedTar(
  chunks: AsyncIterable<Buffer>,
  { maxBytes = MAX_TAR_BYTES } = {},
): AsyncGenerator<Buffer> {
  let total = 0
  for await (const chunk of chunks) {
    total += chunk.length
    if (total > maxBytes) throw tooMuch(`has a tar of more than ${maxBytes} bytes`)
    yield chunk
  }
}
