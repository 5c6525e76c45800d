import { monotonicMs } from '../../../core/monotonic.ts'
import { type PartName, placeName } from '../layout.ts'
import { findDrift, type RecordFolder } from './drift.ts'
import type { TreeDifference } from './tree-comparison.ts'
import { TreeStamps } from './tree-stamps.ts'

/**
 * Milliseconds for which a comparison is recent enough for a note about a tree that is compared again when it moves.
 */
const RECENT_MS = 5000
/**
 * Milliseconds from its start in which a comparison counts as current: the files read first are that old when it ends.
 */
const JUST_NOW_MS = 1000

export interface DriftCheckSetting extends RecordFolder {
  keepPaths(): readonly string[]
  readonly signal: AbortSignal
  readonly clockMs?: () => number
}

/** A comparison, with its start and end in milliseconds of the clock; the end is infinite while it runs. */
interface Found {
  readonly difference: Promise<TreeDifference | undefined>
  readonly stamps: TreeStamps
  readonly startedAt: number
  endedAt: number
}

/** Compares installed trees with their records; see `findDrift`. */
export class DriftCheck {
  readonly #setting: DriftCheckSetting
  readonly #clockMs: () => number
  #isDisregarded = false
  readonly #found = new Map<string, Found>()

  constructor(setting: DriftCheckSetting) {
    this.#setting = setting
    this.#clockMs = setting.clockMs ?? monotonicMs
  }

  /** From now on, no difference is known: the places do not contain the trees that the records describe. */
  disregard(): void {
    this.#isDisregarded = true
  }

  /** Returns the last differences found; compares only a part that was not compared yet. */
  async of(part: PartName): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    return await (this.#found.get(placeName(part)) ?? this.#compare(part)).difference
  }

  /** Returns the present differences; a part that could not be compared is not compared again. */
  async again(part: PartName): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    const known = this.#found.get(placeName(part))
    if (known !== undefined && (await known.difference) === undefined) return undefined
    return await this.#compare(part).difference
  }

  /** Returns the current differences, or those of some seconds ago. */
  async recent(part: PartName): Promise<TreeDifference | undefined> {
    const found = this.#found.get(placeName(part))
    return found !== undefined && this.#clockMs() - found.endedAt < RECENT_MS
      ? await this.of(part)
      : await this.again(part)
  }

  /**
   * Returns the differences of a tree when it left its place, or, if that tree is going to be kept, a moment before.
   * The tree was moved to `root`, where nobody reaches it by its old name. Compares it again only if anything in it has
   * changed since. A part that could not be compared is not compared again.
   */
  async moved(
    part: PartName,
    { root, isKept }: { readonly root: string; readonly isKept: boolean },
  ): Promise<TreeDifference | undefined> {
    const known = this.#found.get(placeName(part))
    if (this.#isDisregarded || known === undefined || (await known.difference) === undefined) return undefined
    if (isKept && this.#clockMs() - known.startedAt < JUST_NOW_MS) return await known.difference
    const tree = { root, keepPaths: this.#setting.keepPaths() }
    if (await known.stamps.areThoseOf(tree, this.#setting.signal)) return await known.difference
    return await this.#compare(part, root).difference
  }

  #compare({ shelf, id }: PartName, root?: string): Found {
    const { signal } = this.#setting
    const startedAt = this.#clockMs()
    const stamps = new TreeStamps()
    const onStamp = (path: string, stamp: string): void => stamps.see(path, stamp)
    const tree = { shelf, id, keepPaths: this.#setting.keepPaths(), root, onStamp }
    const difference = findDrift(this.#setting, tree, signal)
    const found = { difference, stamps, startedAt, endedAt: Number.POSITIVE_INFINITY }
    const end = (): void => {
      found.endedAt = this.#clockMs()
    }
    difference.then(end, end)
    this.#found.set(placeName({ shelf, id }), found)
    return found
  }
}

/** True if two comparisons found the same differences. */
export function isSameDifference(one: TreeDifference | undefined, other: TreeDifference | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** True if nothing differs but added files. */
export function isOnlyAdded({ removed, changed, instead }: Omit<TreeDifference, 'added'>): boolean {
  return instead === undefined && removed.length + changed.length === 0
}

/** Describes a number of added files. */
export function addedInWords(count: number): string {
  return count === 1 ? '1 file was added on this host' : `${count} files were added on this host`
}

/** True if there is any difference. */
export function isModified(drift: TreeDifference | undefined): drift is TreeDifference {
  if (drift === undefined) return false
  const { added, removed, changed, instead } = drift
  return instead !== undefined || added.length + removed.length + changed.length > 0
}
