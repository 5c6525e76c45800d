import { type ArchiveEntry, MAX_LEVELS, unsafe } from './archive-entry.ts'
import { childOf, type TreeNode } from './entry-tree.ts'

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
export class Symlinks {
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
