import { countInWords } from '../../../core/quantities.ts'
import { comparePaths } from '../../../core/trust/tree-digest.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import type { Layout } from '../layout.ts'
import { readRecordLines } from './record/read-tree-record.ts'
import { asLine, isAlike, type RecordedLine } from './record/record-line.ts'
import type { RecordedItem } from './record/recorded-item.ts'
import type { TreeIdentity } from './record/tree-identity.ts'
import type { TreeDifference } from './tree-comparison.ts'

/** The lines of a path in two records; undefined for a record that does not list it. */
interface Versions {
  before?: RecordedLine
  after?: RecordedLine
}

/**
 * Counts the files that a new tree changes, adds and removes. Compares the items of the new tree with the record of the
 * old one while the items pass through `count`, so that no file is read again.
 */
export class TreeChange {
  readonly #before: Iterable<RecordedLine> | undefined
  #counts = { changed: 0, added: 0, removed: 0, all: 0 }
  #isUncounted = false
  /**
   * The numbers of counted files for which the new tree only undoes a change on the host: edited and missing files are
   * restored, and added files are removed.
   */
  #undone = { restored: 0, removed: 0 }

  /**
   * `before` is the installed tree, if any. Never throws: without a readable record of that tree, nothing is compared.
   */
  constructor(layout: Layout, before: TreeIdentity | undefined) {
    this.#before = before && orUndefined(() => readRecordLines(layout, before))
  }

  /** Passes on the items of the new tree while counting them. */
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
        if (!isAlike(old, line)) this.#counts.changed++
        old = next()
      }
      this.#counts.all++
      yield item
    }
    for (; old !== undefined; old = next()) this.#counts.removed++
  }

  /**
   * Adjusts the counts, which compare two records, for the differences between the replaced tree and its own record.
   * Reads each record at most once, however many files differ. Works in slices. If a record cannot be read, throws as
   * `readRecordLines` does and corrects nothing.
   */
  async correct(drift: TreeDifference, layout: Layout, records: Record<keyof Versions, TreeIdentity>): Promise<void> {
    if (drift.instead !== undefined) {
      this.#counts = { ...this.#counts, changed: 0, removed: 0, added: this.#counts.all }
      return
    }
    if (drift.uncounted) {
      this.#isUncounted = true
      return
    }
    const versions = await findVersions([...drift.changed, ...drift.removed, ...drift.added], layout, records)
    for (const path of drift.changed) if (isSame(versions.get(path))) this.#restore('changed')
    for (const path of drift.removed) {
      if (isSame(versions.get(path))) this.#restore('added')
      else if (versions.get(path)?.after === undefined) this.#counts.removed--
      else this.#recount('changed', 'added')
    }
    for (const path of drift.added) {
      if (versions.get(path)?.after !== undefined) this.#recount('added', 'changed')
      else {
        this.#counts.removed++
        this.#undone.removed++
      }
    }
  }

  #restore(how: 'changed' | 'added'): void {
    this.#counts[how]++
    this.#undone.restored++
  }

  #recount(from: 'changed' | 'added', to: 'changed' | 'added'): void {
    this.#counts[from]--
    this.#counts[to]++
  }

  /**
   * Returns, for example, `58 files changed, 2 added, 1 removed`; returns the number of all files if the changes could
   * not be counted.
   */
  inWords(): string {
    const { changed, added, removed, all } = this.#counts
    if (this.#before === undefined || this.#isUncounted) return countInWords(all, 'file')
    const parts = Object.entries({ changed, added, removed }).filter(([, count]) => count > 0)
    if (parts.length === 0) return 'no file changed'
    const undone = this.#undone
    if (undone.restored + undone.removed === changed + added + removed) {
      const restored = undone.restored === 0 ? [] : [`${countInWords(undone.restored, 'edited file')} restored`]
      const dropped = undone.removed === 0 ? [] : [`${countInWords(undone.removed, 'added file')} removed`]
      return [...restored, ...dropped].join(', ')
    }
    return parts
      .map(([how, count], index) => `${index === 0 ? countInWords(count, 'file') : countInWords(count)} ${how}`)
      .join(', ')
  }
}

/** Returns the lines of these paths in two records. */
async function findVersions(
  paths: readonly string[],
  layout: Layout,
  records: Record<keyof Versions, TreeIdentity>,
): Promise<ReadonlyMap<string, Versions>> {
  const versions = new Map<string, Versions>(paths.map(path => [path, {}]))
  const slice = new TimeSlice()
  for (const which of ['before', 'after'] as const) {
    await slice.forEach(readRecordLines(layout, records[which]) ?? [], line => {
      const found = versions.get(line.path)
      if (found !== undefined) found[which] = line
    })
  }
  return versions
}

function isSame({ before, after }: Versions = {}): boolean {
  return before !== undefined && after !== undefined && isAlike(before, after)
}

/** Returns undefined instead of throwing. Damage to a record is reported where the record is needed. */
function orUndefined<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
