import { monotonicMs } from '../../../core/monotonic.ts'
import { type PartName, placeName } from '../layout.ts'
import { findDrift, type RecordFolder } from './drift.ts'
import type { TreeDifference } from './tree-comparison.ts'
import { TreeStamps } from './tree-stamps.ts'

/** Milliseconds for which a comparison is new enough for the note of a tree that is going to be moved, and compared then. */
const RECENT_MS = 5000
/** Milliseconds from its start for which it counts as one of now: what is read first is as old when it ends. */
const JUST_NOW_MS = 1000

/** What a check works with. */
export interface DriftCheckSetting extends RecordFolder {
  keepPaths(): readonly string[]
  readonly signal: AbortSignal
  readonly clockMs?: () => number
}

/** A comparison, when it started, and when it ended, in milliseconds of the clock; never while it runs. */
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

  /** From now on, nothing is known: what is in the places is not what the records are of. */
  disregard(): void {
    this.#isDisregarded = true
  }

  /** As `findDrift` has found it last; compares only what was not compared. */
  async of(part: PartName): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    return await (this.#found.get(placeName(part)) ?? this.#compare(part)).difference
  }

  /** As it is now; what could not be compared is not compared again. */
  async again(part: PartName): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    const known = this.#found.get(placeName(part))
    if (known !== undefined && (await known.difference) === undefined) return undefined
    return await this.#compare(part).difference
  }

  /** As it is now, or was some seconds ago. */
  async recent(part: PartName): Promise<TreeDifference | undefined> {
    const found = this.#found.get(placeName(part))
    return found !== undefined && this.#clockMs() - found.endedAt < RECENT_MS
      ? await this.of(part)
      : await this.again(part)
  }

  /**
   * As it was when it left its place, or, where that tree is going to be kept, a moment before: it was moved to `root`,
   * where nobody reaches it by its old name. Compares it again only if anything in it has changed since. What could not
   * be compared is not compared again.
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

/** Whether two comparisons have found the same. */
export function isSameDifference(one: TreeDifference | undefined, other: TreeDifference | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** Whether nothing but added files is different. */
export function isOnlyAdded({ removed, changed, instead }: Omit<TreeDifference, 'added'>): boolean {
  return instead === undefined && removed.length + changed.length === 0
}

/** So many added files, in words. */
export function addedInWords(count: number): string {
  return count === 1 ? '1 file was added on this host' : `${count} files were added on this host`
}

/** Whether there is any difference. */
export function isModified(drift: TreeDifference | undefined): drift is TreeDifference {
  if (drift === undefined) return false
  const { added, removed, changed, instead } = drift
  return instead !== undefined || added.length + removed.length + changed.length > 0
}
