import { type ArchiveEntry, MAX_ENTRIES, tooMuch, unsafe } from './archive-entry.ts'

/** The file, directory or symlink that a host creates at one place. */
export interface TreeNode {
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
export class EntryTree {
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
export function childOf(node: TreeNode, name: string): TreeNode | undefined {
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
