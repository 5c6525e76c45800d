import { isDeepStrictEqual } from 'node:util'
import { findDrift, type RecordFolder } from './drift.ts'
import { type Place, placeName } from './layout.ts'
import type { TreeDifference } from './tree-comparison.ts'

/** What a check works with. */
export interface DriftCheckSetting extends RecordFolder {
  readonly keepPaths: readonly string[]
  readonly signal: AbortSignal
}

/** Compares installed trees with their records; see `findDrift`. */
export class DriftCheck {
  readonly #setting: DriftCheckSetting
  #isDisregarded = false
  readonly #found = new Map<string, Promise<TreeDifference | undefined>>()
  readonly #told = new Map<string, TreeDifference | undefined>()

  constructor(setting: DriftCheckSetting) {
    this.#setting = setting
  }

  /** From now on, nothing is known: what is in the places is not what the records are of. */
  disregard(): void {
    this.#isDisregarded = true
  }

  /** As `findDrift` has found it last; compares only what was not compared. */
  async of({ shelf, id }: Place): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    const { keepPaths, signal } = this.#setting
    const name = placeName({ shelf, id })
    const found = this.#found.get(name) ?? findDrift(this.#setting, { shelf, id, keepPaths }, signal)
    this.#found.set(name, found)
    return await found
  }

  /** As it is now; what could not be compared is not compared again. */
  async again({ shelf, id }: Place): Promise<TreeDifference | undefined> {
    const { keepPaths, signal } = this.#setting
    const name = placeName({ shelf, id })
    if (this.#isDisregarded) return undefined
    const before = this.#found.has(name) ? await this.of({ shelf, id }) : null
    if (before === undefined) return undefined
    const now = await findDrift(this.#setting, { shelf, id, keepPaths }, signal)
    if (!isDeepStrictEqual(before, now)) this.#found.set(name, Promise.resolve(now))
    return await this.of({ shelf, id })
  }

  /** What `of` says of these places, without those of which it has said the same here. */
  async news<Placed extends Place>(places: readonly Placed[]): Promise<Map<Placed, TreeDifference | undefined>> {
    const news = new Map<Placed, TreeDifference | undefined>()
    for (const place of this.#isDisregarded ? [] : places) {
      const [name, found] = [placeName(place), await this.of(place)]
      if (!this.#told.has(name) || this.#told.get(name) !== found) news.set(place, found)
      this.#told.set(name, found)
    }
    return news
  }
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
