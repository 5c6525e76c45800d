import { unsafeEntry } from './archive-entry.ts'
import { comparisonKey } from './platform-names.ts'

type NodeType = 'file' | 'directory' | 'symlink'

interface Node {
  readonly path: string
  readonly type: NodeType
  /** False for a directory that so far only the paths below it imply. */
  listed: boolean
}

/**
 * The tree that an extraction is going to make, refusing whatever could not exist beside the rest: two equal names, a
 * file that is also a directory, anything below a file or symlink. Names are equal when the platform may take them for one.
 */
export class PlannedTree {
  /** Parents before what is in them. */
  readonly directories: string[] = []
  readonly #nodes = new Map<string, Node>()
  readonly #platform: NodeJS.Platform

  constructor(platform: NodeJS.Platform) {
    this.#platform = platform
  }

  /** Adds a listed entry and the directories that its path implies. Throws ArchiveError `unsafe_archive`. */
  add(path: string, type: NodeType): void {
    const key = comparisonKey(path, this.#platform)
    this.#addParents(path, key)
    const there = this.#nodes.get(key)
    if (there === undefined) this.#set(key, { path, type, listed: true })
    else this.#unite(there, path, type)
  }

  /** What will be at exactly this path. */
  typeAt(path: string): NodeType | undefined {
    const node = this.#nodes.get(comparisonKey(path, this.#platform))
    return node?.path === path ? node.type : undefined
  }

  /** A directory may be listed after what is in it, once. */
  #unite(there: Node, path: string, type: NodeType): void {
    if (there.path !== path) throw unsafeEntry(path, `has the same name as "${there.path}" to this platform`)
    if (there.type !== type) throw unsafeEntry(path, `is listed both as a ${there.type} and as a ${type}`)
    if (there.listed) throw unsafeEntry(path, 'is listed twice')
    there.listed = true
  }

  /** Stops at the first known parent, whose own parents are known too, so that deep paths do not cost their depth each. */
  #addParents(path: string, key: string): void {
    const missing: { key: string; path: string }[] = []
    let cut = path.lastIndexOf('/')
    for (let keyCut = key.lastIndexOf('/'); keyCut !== -1; keyCut = key.lastIndexOf('/', keyCut - 1)) {
      const parent = { key: key.slice(0, keyCut), path: path.slice(0, cut) }
      const there = this.#nodes.get(parent.key)
      if (there !== undefined) {
        verifyParent(there, parent.path, path)
        break
      }
      missing.push(parent)
      cut = path.lastIndexOf('/', cut - 1)
    }
    for (const parent of missing.reverse()) {
      this.#set(parent.key, { path: parent.path, type: 'directory', listed: false })
    }
  }

  #set(key: string, node: Node): void {
    this.#nodes.set(key, node)
    if (node.type === 'directory') this.directories.push(node.path)
  }
}

function verifyParent(there: Node, parent: string, path: string): void {
  if (there.type !== 'directory') throw unsafeEntry(path, `lies below "${there.path}", which is a ${there.type}`)
  if (there.path !== parent)
    throw unsafeEntry(path, `lies in "${parent}", the same name as "${there.path}" to this platform`)
}
