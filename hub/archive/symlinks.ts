import { type ArchiveEntry, MAX_LEVELS, unsafe } from './archive-entry.ts'
import { childOf, type TreeNode } from './entry-tree.ts'

const MAX_HOPS = 40
/** Linux keeps a target in one page, with a NUL at its end. */
const MAX_TARGET_BYTES = 4095
const LEADS_OUT = 'leads out of the archive or in a circle'

/** The end of a path, and the number of symlinks that it passes. */
interface End {
  /** Undefined if the archive contains nothing there. */
  readonly node: TreeNode | undefined
  readonly hops: number
}

/** Follows symlinks below `top`. Follows each only once, however many paths lead through it. */
export class Symlinks {
  readonly #top: TreeNode
  readonly #ends = new Map<TreeNode, End | 'on the way'>()

  constructor(top: TreeNode) {
    this.#top = top
  }

  /**
   * Returns the final target of a symlink, or the node itself if it is none. Throws HubError 400 for a symlink that no
   * host creates: to an absolute or too long path, out of the tree, in a circle, through a file, or up from a directory
   * that does not exist.
   */
  endOf(node: TreeNode): TreeNode | undefined {
    return node.type === 'symlink' ? this.#resolve(node, 1).node : node
  }

  #resolve(symlink: TreeNode, depth: number): End {
    const known = this.#ends.get(symlink)
    const entry = symlink.entry as ArchiveEntry
    if (known === 'on the way' || depth > MAX_HOPS) throw refused(entry, LEADS_OUT)
    if (known !== undefined) return known
    this.#ends.set(symlink, 'on the way')
    const end = this.#follow(symlink, entry, depth)
    this.#ends.set(symlink, end)
    return end
  }

  #follow({ parent }: TreeNode, entry: ArchiveEntry, depth: number): End {
    let at: TreeNode | undefined = parent
    let hops = 1
    for (const step of stepsOf(entry)) {
      if (at === undefined && step === '..')
        throw refused(entry, 'goes up from a path that the archive does not contain')
      if (at !== undefined && at.type !== 'directory') throw refused(entry, 'uses a file as a directory')
      if (at === undefined || step === '' || step === '.') continue
      if (step === '..' && (at === this.#top || at.parent === undefined)) throw refused(entry, LEADS_OUT)
      at = step === '..' ? at.parent : childOf(at, step)
      if (at?.type !== 'symlink') continue
      const end = this.#resolve(at, depth + hops)
      at = end.node
      hops += end.hops
      if (hops > MAX_HOPS) throw refused(entry, LEADS_OUT)
    }
    return { node: at, hops }
  }
}

/** Splits a target into its steps, after cheap checks of its text. */
function stepsOf(entry: ArchiveEntry): string[] {
  const { target } = entry
  if (target === undefined || Buffer.byteLength(target) > MAX_TARGET_BYTES)
    throw refused(entry, `has more than ${MAX_TARGET_BYTES} bytes`)
  if (target === '' || target.startsWith('/') || /^[A-Za-z]:|[\\\p{Cc}]/u.test(target))
    throw refused(entry, 'is no relative path')
  const steps = target.split('/', MAX_LEVELS + 1)
  if (steps.length > MAX_LEVELS) throw refused(entry, `has more than ${MAX_LEVELS} levels`)
  return steps
}

function refused({ name, target = '' }: ArchiveEntry, problem: string): Error {
  return unsafe(name, `is a symlink to ${JSON.stringify(target.slice(0, 100))}, which ${problem}`)
}
