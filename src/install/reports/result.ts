import type { DeployError } from '../../core/errors.ts'
import { bytesInWords, countInWords, listAll } from '../../core/text.ts'
import type { PlannedStep } from '../transaction/record.ts'
import type { LocalReport } from './local-report.ts'
import type { Delivery } from './sender.ts'

/** The result of a run, or of the recovery of a run. */
export interface RunResult {
  readonly report: LocalReport
  /** Absent if the report was not written, or could not be written. */
  readonly reportPath?: string | undefined
  readonly plannedSteps: readonly PlannedStep[]
  /** The result of sending the report to the hub; absent if the report was not sent. */
  readonly delivery?: Delivery | undefined
  /** One sentence to show below the cause: the records that could not be written on this host, and why. */
  readonly unwritten?: string | undefined
  /** The error that made the run fail, as it was thrown; absent if the run succeeded. */
  readonly error?: DeployError | undefined
  /** For the post step of a cancelled run: see `writeHandover`. */
  readonly handover?: string | undefined
  /** The changes that a real run would make; only for a dry run that succeeded. */
  readonly dryRun?: DryRunResult | undefined
}

/** A file that a real run would change. */
interface FileChange {
  readonly how: 'added' | 'changed' | 'removed'
  /** Relative to the project root. */
  readonly path: string
  /** The size before the change, in words; absent for an added file. */
  readonly before?: string
  /** The size after the change, in words, or the origin of the content; absent for a removed file. */
  readonly after?: string
}

/** The maximum number of changes to list: if a tool has rewritten a tree, every file in it may differ. */
const MAX_LISTED = 200

/** The changes that a real run would make, as a dry run found them. */
export class DryRunResult {
  /** The first 200 changes. */
  readonly changes: FileChange[] = []
  /** The counts of all changes, by kind. */
  readonly counts = { added: 0, changed: 0, removed: 0 }
  /** True if there may be more removals than `counts` says: a comparison lists at most 10,000 files to remove. */
  hasMore = false
  /** The parts that would be removed, one sentence each. */
  readonly removals: string[] = []

  /** Adds a change. Calls `sizes` only if the change is listed. */
  add(how: FileChange['how'], path: string, sizes: () => Pick<FileChange, 'before' | 'after'>): void {
    this.counts[how]++
    if (this.changes.length < MAX_LISTED) this.changes.push({ how, path, ...sizes() })
  }

  get count(): number {
    const { added, changed, removed } = this.counts
    return added + changed + removed
  }

  /** Formats a number of changes: `3 files`, or `at least 3 files` if there may be more. */
  countInWords(count: number, noun?: string): string {
    return `${this.hasMore ? 'at least ' : ''}${countInWords(count, noun)}`
  }

  /** Summarizes the changes: `remove 1 part and change 3 files`. */
  inWords(): string {
    const removed = this.removals.length
    const parts = removed === 0 ? [] : [`remove ${countInWords(removed, 'part')}`]
    if (this.count === 0) return listAll(parts) || 'change no file'
    return listAll([...parts, `change ${this.countInWords(this.count, 'file')}`])
  }

  /** Summarizes the changes in detail: `remove 1 part and change 3 files: 1 added, 1 changed, 1 removed`. */
  inDetail(): string {
    const kinds = Object.entries(this.counts).filter(([, count]) => count > 0)
    const listed = kinds.map(([how, count]) => {
      const number = how === 'removed' ? this.countInWords(count) : countInWords(count)
      return `${number} ${how}`
    })
    return `${this.inWords()}${listed.length === 0 ? '' : `: ${listed.join(', ')}`}`
  }
}

/** Returns a size in words, or `symlink` for an undefined size. */
export function sizeInWords(size: string | number | bigint | undefined): string {
  return size === undefined ? 'symlink' : bytesInWords(Number(size))
}

/** Returns the sizes of a change: `1.1 → 1.3 kB` if the unit stays the same. */
export function sizesInWords({ before, after }: Pick<FileChange, 'before' | 'after'>): string {
  if (before === undefined || after === undefined) return before ?? after ?? ''
  if (before === after) return before
  const [, unit] = before.split(' ')
  return after.endsWith(` ${unit}`) ? `${before.split(' ')[0]} → ${after}` : `${before} → ${after}`
}
