import { type PartName, placeName } from '../layout.ts'
import { findDrift, type RecordFolder } from './drift.ts'
import type { TreeDifference } from './tree-comparison.ts'

/** What a check works with. */
export interface DriftCheckSetting extends RecordFolder {
  keepPaths(): readonly string[]
  readonly signal: AbortSignal
}

/** Compares installed trees with their records; see `findDrift`. */
export class DriftCheck {
  readonly #setting: DriftCheckSetting
  #isDisregarded = false
  readonly #found = new Map<string, Promise<TreeDifference | undefined>>()

  constructor(setting: DriftCheckSetting) {
    this.#setting = setting
  }

  /** From now on, nothing is known: what is in the places is not what the records are of. */
  disregard(): void {
    this.#isDisregarded = true
  }

  /** As `findDrift` has found it last; compares only what was not compared. */
  async of({ shelf, id }: PartName): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    const { signal } = this.#setting
    const name = placeName({ shelf, id })
    const found =
      this.#found.get(name) ?? findDrift(this.#setting, { shelf, id, keepPaths: this.#setting.keepPaths() }, signal)
    this.#found.set(name, found)
    return await found
  }

  /** As it is now; what could not be compared is not compared again. */
  async again({ shelf, id }: PartName): Promise<TreeDifference | undefined> {
    const { signal } = this.#setting
    const name = placeName({ shelf, id })
    if (this.#isDisregarded) return undefined
    const before = this.#found.has(name) ? await this.of({ shelf, id }) : null
    if (before === undefined) return undefined
    const now = await findDrift(this.#setting, { shelf, id, keepPaths: this.#setting.keepPaths() }, signal)
    this.#found.set(name, Promise.resolve(now))
    return now
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
