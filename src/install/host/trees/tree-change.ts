import { countInWords } from '../../../core/quantities.ts'
import { comparePaths } from '../../../core/trust/tree-digest.ts'
import type { Layout } from '../layout.ts'
import { type FindRecorded, readRecordLines } from './record/read-tree-record.ts'
import { asLine, type RecordedLine } from './record/record-line.ts'
import type { RecordedItem } from './record/recorded-item.ts'
import type { TreeIdentity } from './record/tree-identity.ts'
import type { TreeDifference } from './tree-comparison.ts'

/** Each is looked up in two records; of a tree with more edits, only the number of its new files is known. */
const MAX_CORRECTED = 200

/**
 * How many files a new tree changes, adds and removes. Compares two records, line by line and in their order, while the
 * new one is written, so that the files are not read again.
 */
export class TreeChange {
  readonly #before: Iterable<RecordedLine> | undefined
  #counts = { changed: 0, added: 0, removed: 0, all: 0 }
  #isUncounted = false
  /** How many of them only undo what was edited on the host. */
  #restored = 0

  /** `before` is what is installed; undefined for a first install. Never throws: without its record, there is no count. */
  constructor(layout: Layout, before: TreeIdentity | undefined) {
    this.#before = before && orUndefined(() => readRecordLines(layout, before))
  }

  /** Passes the items of the new tree on. */
  *count(items: Iterable<RecordedItem>): Generator<RecordedItem, undefined> {
    const before = (this.#before ?? [])[Symbol.iterator]()
    const next = (): RecordedLine | undefined => before.next().value
    let old = next()
    for (const item of items) {
      const line = asLine(item)
      while (old !== undefined && old.path !== line.path && comparePaths(old.path, line.path) < 0) {
        this.#counts.removed++
        old = next()
      }
      if (old?.path !== line.path) this.#counts.added++
      else {
        if (old.what !== line.what) this.#counts.changed++
        old = next()
      }
      this.#counts.all++
      yield item
    }
    for (; old !== undefined; old = next()) this.#counts.removed++
  }

  /**
   * Corrects the counts, which are those of two records, by how the replaced tree differed from its own. The lookups are
   * those of the old and the new record.
   */
  correct(drift: TreeDifference, before: FindRecorded, after: FindRecorded): void {
    const counts = this.#counts
    if (drift.changed.length + drift.removed.length + drift.added.length > MAX_CORRECTED) {
      this.#isUncounted = true
      return
    }
    const isSame = (path: string): boolean => {
      const [old, now] = [before(path), after(path)]
      return old !== undefined && now !== undefined && asLine(old).what === asLine(now).what
    }
    if (drift.instead !== undefined) {
      this.#counts = { ...counts, changed: 0, removed: 0, added: counts.all }
      return
    }
    for (const _ of drift.changed.filter(isSame)) this.#restore('changed')
    for (const path of drift.removed) {
      if (isSame(path)) this.#restore('added')
      else if (after(path) === undefined) counts.removed--
      else {
        counts.changed--
        counts.added++
      }
    }
    for (const path of drift.added) {
      if (after(path) === undefined) this.#restore('removed')
      else {
        counts.added--
        counts.changed++
      }
    }
  }

  #restore(how: 'changed' | 'added' | 'removed'): void {
    this.#counts[how]++
    this.#restored++
  }

  /** `58 files changed, 2 added, 1 removed`, or how many there are where there was nothing to compare with. */
  inWords(): string {
    const { changed, added, removed, all } = this.#counts
    if (this.#before === undefined || this.#isUncounted) return countInWords(all, 'file')
    const parts = Object.entries({ changed, added, removed }).filter(([, count]) => count > 0)
    if (parts.length === 0) return 'no file changed'
    if (this.#restored === changed + added + removed) return `${countInWords(this.#restored, 'edited file')} restored`
    return parts
      .map(([how, count], index) => `${index === 0 ? countInWords(count, 'file') : countInWords(count)} ${how}`)
      .join(', ')
  }
}

/** The damage of a record is reported where it matters. */
function orUndefined<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
