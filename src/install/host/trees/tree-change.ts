import { countInWords } from '../../../core/quantities.ts'
import { comparePaths } from '../../../core/trust/tree-digest.ts'
import type { Layout } from '../layout.ts'
import { type RecordedItem, readTreeRecord, type TreeIdentity } from './tree-record.ts'

/**
 * How many files a new tree changes, adds and removes. Compares two records, item by item and in their order, while
 * the new one is written: nothing is read twice, and nothing is kept.
 */
export class TreeChange {
  readonly #before: Iterable<RecordedItem> | undefined
  #counts = { changed: 0, added: 0, removed: 0, all: 0 }
  #isKnown: boolean

  /** `before` is what is installed; undefined for a first install. Never throws: without its record, there is no count. */
  constructor(layout: Layout, before: TreeIdentity | undefined) {
    this.#before = before && orUndefined(() => readTreeRecord(layout, before))
    this.#isKnown = this.#before !== undefined
  }

  /** Passes the items of the new tree on. */
  *count(items: Iterable<RecordedItem>): Generator<RecordedItem, undefined> {
    const before = this.#before?.[Symbol.iterator]()
    const next = (): RecordedItem | undefined => before && this.#nextOf(before)
    let old = next()
    for (const item of items) {
      for (; old !== undefined && comparePaths(old.path, item.path) < 0; old = next()) this.#counts.removed++
      if (old?.path !== item.path) this.#counts.added++
      else {
        if (!isAlike(old, item)) this.#counts.changed++
        old = next()
      }
      this.#counts.all++
      yield item
    }
    for (; old !== undefined; old = next()) this.#counts.removed++
  }

  /** `58 files changed, 2 added, 1 removed`, or how many there are where there was nothing to compare with. */
  inWords(): string {
    const { changed, added, removed, all } = this.#counts
    if (!this.#isKnown) return countInWords(all, 'file')
    const parts = Object.entries({ changed, added, removed }).filter(([, count]) => count > 0)
    if (parts.length === 0) return 'no file changed'
    return parts
      .map(([how, count], index) => `${index === 0 ? countInWords(count, 'file') : countInWords(count)} ${how}`)
      .join(', ')
  }

  /** The damage of a record is reported where it matters. */
  #nextOf(before: Iterator<RecordedItem>): RecordedItem | undefined {
    const result = orUndefined(() => before.next())
    if (result === undefined) this.#isKnown = false
    return result === undefined || result.done ? undefined : result.value
  }
}

function isAlike(a: RecordedItem, b: RecordedItem): boolean {
  return a.sha256 === b.sha256 && a.kind === b.kind && (a.kind !== 'link' || a.content === b.content)
}

function orUndefined<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
