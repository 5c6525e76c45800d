import { type ExtractableType, unsafeEntry } from './archive-entry.ts'
import { comparisonKey } from './platform-names.ts'

/** The directory, file or symlink that an extraction is going to create at one path. */
export interface TreeNode<Entry = unknown> {
  readonly name: string
  /** The path from the archive's top. */
  readonly path: string
  readonly type: ExtractableType
  /** Null for the archive's top, and for a directory that so far is only implied by the paths below it. */
  readonly entry: Entry | null
  /** Null for the archive's top. */
  readonly parent: TreeNode<Entry> | null
  /** The number of directories above the node. */
  readonly depth: number
  /** The children of a directory, by their comparison keys. */
  readonly children: ReadonlyMap<string, TreeNode<Entry>>
}

interface OwnNode<Entry> extends TreeNode<Entry> {
  readonly children: Map<string, OwnNode<Entry>>
  entry: Entry | null
}

const NO_CHILDREN = new Map<string, never>()

/**
 * The tree that an extraction is going to create. Refuses entries that could not exist next to each other: two equal
 * names, a file that is also a directory, anything below a file or symlink. Names are equal if they may be one name to
 * the platform.
 */
export class PlannedTree<Entry> {
  readonly top: TreeNode<Entry>
  /** All directories, parents before their children. */
  readonly directories: TreeNode<Entry>[] = []
  /** The number of files, directories and symlinks, listed and implied. */
  count = 0
  readonly #top: OwnNode<Entry>
  readonly #platform: NodeJS.Platform

  constructor(platform: NodeJS.Platform) {
    this.#platform = platform
    this.#top = { name: '', path: '', type: 'directory', entry: null, parent: null, depth: 0, children: new Map() }
    this.top = this.#top
  }

  /** Adds a listed entry and the directories that its path implies. Throws ArchiveError `unsafe_archive`. */
  add(path: string, type: ExtractableType, entry: Entry): TreeNode<Entry> {
    let parent = this.#top
    let start = 0
    for (let end = path.indexOf('/'); end !== -1; end = path.indexOf('/', start)) {
      parent = this.#directory(parent, { path, start, end })
      start = end + 1
    }
    const name = path.slice(start)
    const key = comparisonKey(name, this.#platform)
    const there = parent.children.get(key)
    return there === undefined
      ? this.#create(parent, key, { name, path, type, entry })
      : unite(there, { path, type, entry })
  }

  /** Returns the directory on the way to a path whose name is at these positions; creates it if necessary. */
  #directory(
    parent: OwnNode<Entry>,
    { path, start, end }: { path: string; start: number; end: number },
  ): OwnNode<Entry> {
    const name = path.slice(start, end)
    const key = comparisonKey(name, this.#platform)
    const there = parent.children.get(key)
    if (there === undefined)
      return this.#create(parent, key, { name, path: path.slice(0, end), type: 'directory', entry: null })
    if (there.type !== 'directory') throw unsafeEntry(path, `is below "${there.path}", which is a ${there.type}`)
    if (there.name === name) return there
    throw unsafeEntry(path, `is in "${name}", which is the same name as "${there.path}" on this platform`)
  }

  #create(
    parent: OwnNode<Entry>,
    key: string,
    { name, path, type, entry }: Pick<OwnNode<Entry>, 'name' | 'path' | 'type' | 'entry'>,
  ): OwnNode<Entry> {
    const children = type === 'directory' ? new Map<string, OwnNode<Entry>>() : NO_CHILDREN
    const node = { name, path, type, entry, parent, depth: parent.depth + 1, children }
    parent.children.set(key, node)
    this.count += 1
    if (node.type === 'directory') this.directories.push(node)
    return node
  }
}

/** Completes an implied directory: a directory may be listed once after its children. */
function unite<Entry>(
  there: OwnNode<Entry>,
  { path, type, entry }: Pick<OwnNode<Entry>, 'path' | 'type' | 'entry'>,
): OwnNode<Entry> {
  if (there.path !== path) throw unsafeEntry(path, `has the same name as "${there.path}" on this platform`)
  if (there.type !== type) throw unsafeEntry(path, `is listed both as a ${there.type} and as a ${type}`)
  if (there.entry !== null) throw unsafeEntry(path, 'is listed twice')
  there.entry = entry
  return there
}
