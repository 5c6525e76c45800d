import { unsafeEntry } from './archive-entry.ts'
import { comparisonKey } from './platform-names.ts'

type NodeType = 'file' | 'directory' | 'symlink'

interface Node {
  readonly path: string
  readonly type: NodeType
  /** False for a directory that so far is only implied by the paths below it. */
  listed: boolean
}

/**
 * The tree that an extraction is going to create. It refuses entries that could not exist next to each other: two equal
 * names, a file that is also a directory, anything below a file or symlink. Names are equal when they may be one name
 * to the platform.
 */
export class PlannedTree {
  /** Parents before their children. */
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
    const node = { path, type, listed: true }
    if (there === undefined) this.#set(key, node)
    else unite(there, node)
  }

  /** What will be at exactly this path. */
  typeAt(path: string): NodeType | undefined {
    const node = this.#nodes.get(comparisonKey(path, this.#platform))
    return node?.path === path ? node.type : undefined
  }

  /**
   * Stops at the first known parent, whose own parents are known too, so that a deep path does not cost its whole depth
   * each time.
   */
  #addParents(path: string, key: string): void {
    const missing: { key: string; path: string }[] = []
    let cut = path.lastIndexOf('/')
    for (let keyCut = key.lastIndexOf('/'); keyCut !== -1; keyCut = key.lastIndexOf('/', keyCut - 1)) {
      const parent = { key: key.slice(0, keyCut), path: path.slice(0, cut) }
      const there = this.#nodes.get(parent.key)
      if (there !== undefined) {
        const problem = parentProblem(there, parent.path)
        if (problem !== undefined) throw unsafeEntry(path, problem)
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

/** A directory may be listed once after its children. */
function unite(there: Node, { path, type }: Node): void {
  if (there.path !== path) throw unsafeEntry(path, `has the same name as "${there.path}" on this platform`)
  if (there.type !== type) throw unsafeEntry(path, `is listed both as a ${there.type} and as a ${type}`)
  if (there.listed) throw unsafeEntry(path, 'is listed twice')
  there.listed = true
}

function parentProblem(there: Node, parent: string): string | undefined {
  if (there.type !== 'directory') return `is below "${there.path}", which is a ${there.type}`
  if (there.path !== parent) return `is in "${parent}", which is the same name as "${there.path}" on this platform`
  return undefined
}
