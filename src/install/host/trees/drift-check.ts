import { monotonicMs } from '../../../core/monotonic.ts'
import { countInWords } from '../../../core/quantities.ts'
import { type PartName, placeName } from '../layout.ts'
import { findDrift, type RecordFolder } from './drift.ts'
import type { TreeDifference } from './tree-comparison.ts'
import { TreeStamps } from './tree-stamps.ts'

/**
 * The maximum age, in milliseconds, of a comparison that is recent enough for a note about a tree. The note is only
 * about the tree's state before the move; see `moved`.
 */
const RECENT_MS = 5000
/**
 * The maximum age, in milliseconds, of a comparison that counts as current. The age is measured from the start of the
 * comparison, when the first files are read.
 */
const JUST_NOW_MS = 1000

export interface DriftCheckSetting extends RecordFolder {
  keepPaths(): readonly string[]
  readonly signal: AbortSignal
  readonly clockMs?: () => number
}

/** A comparison, with its start and end in milliseconds of the clock; the end is infinite while the comparison runs. */
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

  /** After this call, no difference is known, because the places do not contain the trees that the records describe. */
  disregard(): void {
    this.#isDisregarded = true
  }

  /** Returns the last differences found; compares a part only if it has not been compared yet. */
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

  /** Returns the current differences, or those from less than 5 seconds ago. */
  async recent(part: PartName): Promise<TreeDifference | undefined> {
    const found = this.#found.get(placeName(part))
    return found !== undefined && this.#clockMs() - found.endedAt < RECENT_MS
      ? await this.of(part)
      : await this.again(part)
  }

  /**
   * Returns the differences that a tree had when it left its place. For a tree that will be kept, differences
   * from up to a second earlier also count. The tree was moved to `root`, where no process reaches the tree by its old
   * name. Compares the tree again only if anything in it has changed since the last comparison. A part that could not
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

/** True if two comparisons found the same differences. */
export function isSameDifference(one: TreeDifference | undefined, other: TreeDifference | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** True if there is no difference except added files. */
export function isOnlyAdded({ removed, changed, instead }: Omit<TreeDifference, 'added'>): boolean {
  return instead === undefined && removed.length + changed.length === 0
}

/** Describes the number of added files; `isLeast` says that further ones were not counted. */
export function addedInWords(count: number, isLeast = false): string {
  if (count === 1) return '1 file was added on this host'
  return `${isLeast ? 'at least ' : ''}${countInWords(count)} files were added on this host`
}

/** True if there is any difference. */
export function isModified(drift: TreeDifference | undefined): drift is TreeDifference {
  if (drift === undefined) return false
  const { added, removed, changed, instead } = drift
  return instead !== undefined || added.length + removed.length + changed.length > 0
}
