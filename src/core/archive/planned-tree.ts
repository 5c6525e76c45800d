import { type ExtractableType, unsafeEntry } from './archive-entry.ts'
import { comparisonKey } from './platform-names.ts'

/** What an extraction is going to create at one path. */
export interface TreeNode {
  readonly name: string
  /** From the archive's top. */
  readonly path: string
  readonly type: ExtractableType
  /** Null for the archive's top itself. */
  readonly parent: TreeNode | null
  /** Directories above it. */
  readonly depth: number
  /** Of a directory, by their comparison keys. */
  readonly children: ReadonlyMap<string, TreeNode>
}

interface OwnNode extends TreeNode {
  readonly children: Map<string, OwnNode>
  /** False for a directory that so far is only implied by the paths below it. */
  listed: boolean
}

const NO_CHILDREN: Map<string, OwnNode> = new Map()

/**
 * The tree that an extraction is going to create. It refuses entries that could not exist next to each other: two equal
 * names, a file that is also a directory, anything below a file or symlink. Names are equal when they may be one name
 * to the platform.
 */
export class PlannedTree {
  readonly top: TreeNode
  /** All of them, parents before their children. */
  readonly directories: TreeNode[] = []
  /** Files, directories and symlinks, listed and implied. */
  count = 0
  readonly #top: OwnNode
  readonly #platform: NodeJS.Platform

  constructor(platform: NodeJS.Platform) {
    this.#platform = platform
    this.#top = { name: '', path: '', type: 'directory', parent: null, depth: 0, children: new Map(), listed: true }
    this.top = this.#top
  }

  /** Adds a listed entry and the directories that its path implies. Throws ArchiveError `unsafe_archive`. */
  add(path: string, type: ExtractableType): TreeNode {
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
      ? this.#create(parent, key, { name, path, type, listed: true })
      : unite(there, { path, type })
  }

  /** The directory on the way to a path whose name is at these positions. */
  #directory(parent: OwnNode, { path, start, end }: { path: string; start: number; end: number }): OwnNode {
    const name = path.slice(start, end)
    const key = comparisonKey(name, this.#platform)
    const there = parent.children.get(key)
    if (there === undefined)
      return this.#create(parent, key, { name, path: path.slice(0, end), type: 'directory', listed: false })
    if (there.type !== 'directory') throw unsafeEntry(path, `is below "${there.path}", which is a ${there.type}`)
    if (there.name === name) return there
    throw unsafeEntry(path, `is in "${name}", which is the same name as "${there.path}" on this platform`)
  }

  #create(parent: OwnNode, key: string, own: Pick<OwnNode, 'name' | 'path' | 'type' | 'listed'>): OwnNode {
    const children = own.type === 'directory' ? new Map<string, OwnNode>() : NO_CHILDREN
    const node = { ...own, parent, depth: parent.depth + 1, children }
    parent.children.set(key, node)
    this.count += 1
    if (node.type === 'directory') this.directories.push(node)
    return node
  }
}

/** A directory may be listed once after its children. */
function unite(there: OwnNode, { path, type }: Pick<TreeNode, 'path' | 'type'>): OwnNode {
  if (there.path !== path) throw unsafeEntry(path, `has the same name as "${there.path}" on this platform`)
  if (there.type !== type) throw unsafeEntry(path, `is listed both as a ${there.type} and as a ${type}`)
  if (there.listed) throw unsafeEntry(path, 'is listed twice')
  there.listed = true
  return there
}
