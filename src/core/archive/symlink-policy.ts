import { MAX_PATH_BYTES, MAX_PATH_LEVELS } from '../limits.ts'
import { unsafeEntry } from './archive-entry.ts'
import type { PlannedTree, TreeNode } from './planned-tree.ts'
import { platformNameProblem } from './platform-names.ts'

/** The result of following a symlink of an archive. */
export interface ResolvedSymlink {
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
const FORBIDDEN_CHARACTER = /[\\\p{Cc}]/u
const DRIVE_LETTER = /^[A-Za-z]:/

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
export class SymlinkResolver {
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
    const { tree, targetOf } = this.#links
    const target = targetOf(symlink)
    const problem = targetTextProblem(target)
    if (problem !== undefined) throw this.#refused(symlink, problem)
    const parent = tree.parentOf(symlink)
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
    if (this.#links.tree.typeOf(way.at) !== 'directory') return 'that uses a file as a directory'
    if (step === '' || step === '.') return undefined
    return step === '..' ? this.#upProblem(way) : this.#downProblem(way, step)
  }

  #upProblem(way: Way): string | undefined {
    const { tree, root } = this.#links
    if (way.at === root) return 'that leads out of the extracted directory'
    const parent = tree.parentOf(way.at)
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
    if (tree.nameOf(next) !== step) return `that spells "${tree.pathOf(next)}" differently`
    if (tree.typeOf(next) === 'symlink') this.#passThrough(way, next)
    else way.at = next
    return undefined
  }

  #passThrough(way: Way, symlink: TreeNode): void {
    if (way.hops >= MAX_HOPS) throw this.#refused(symlink, IN_LONG_CHAIN)
    const { end, reach, hops } = this.#resolve(symlink, way.hops + 1)
    way.hops += hops
    way.reach = this.#commonDirectory(way.reach, reach)
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

  /** A parent has a lower number than its children, so a directory never contains a directory with a lower number. */
  #commonDirectory(a: TreeNode, b: TreeNode): TreeNode {
    let [one, other] = [a, b]
    while (one !== other) {
      if (one > other) one = this.#links.tree.parentOf(one)
      else other = this.#links.tree.parentOf(other)
    }
    return one
  }

  #refused(symlink: TreeNode, problem: string): Error {
    return unsafeEntry(this.#links.tree.pathOf(symlink), `is a symlink ${problem}`)
  }
}

function targetTextProblem(target: string): string | undefined {
  if (target === '') return 'without a target'
  if (target.startsWith('/')) return 'to an absolute path'
  if (DRIVE_LETTER.test(target)) return 'with a target that starts with a drive letter'
  if (FORBIDDEN_CHARACTER.test(target)) return 'with a backslash or control character in its target'
  if (Buffer.byteLength(target) > MAX_PATH_BYTES) return `with a target of more than ${MAX_PATH_BYTES} bytes`
  if (target.split('/', MAX_PATH_LEVELS + 1).length > MAX_PATH_LEVELS)
    return `with a target of more than ${MAX_PATH_LEVELS} components`
  return undefined
}
