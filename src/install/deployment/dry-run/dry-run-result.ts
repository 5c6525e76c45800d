import { bytesInWords, countInWords } from '../../../core/quantities.ts'

/** A file that a real run would change. */
export interface FileChange {
  readonly how: 'added' | 'changed' | 'removed'
  /** Relative to the project root. */
  readonly path: string
  /** In words; absent for what would be added. */
  readonly before?: string
  /** In words; absent for what would be removed. */
  readonly after?: string
}

/** A part that a real run would move to another directory, or remove. */
export interface PartChange {
  readonly how: 'move' | 'remove'
  readonly sentence: string
}

/** Of a tree that a tool has rewritten, every file may differ. */
const MAX_LISTED = 200

/** What a real run would change, as a dry run has found it. */
export class DryRunResult {
  /** The first 200. */
  readonly changes: FileChange[] = []
  /** How many there are of each kind. */
  readonly counts = { added: 0, changed: 0, removed: 0 }
  /** What would happen to whole parts. */
  readonly parts: PartChange[] = []

  /** `sizes` is only asked for what is listed. */
  add(how: FileChange['how'], path: string, sizes: () => Pick<FileChange, 'before' | 'after'>): void {
    this.counts[how]++
    if (this.changes.length < MAX_LISTED) this.changes.push({ how, path, ...sizes() })
  }

  get count(): number {
    const { added, changed, removed } = this.counts
    return added + changed + removed
  }

  /** What a real run would do: `remove 1 part and change 3 files`. */
  inWords(): string {
    const parts = (['move', 'remove'] as const).flatMap(how => {
      const count = this.parts.filter(part => part.how === how).length
      return count === 0 ? [] : [`${how} ${countInWords(count, 'part')}`]
    })
    if (this.count === 0) return parts.join(' and ') || 'change no file'
    return [...parts, `change ${countInWords(this.count, 'file')}`].join(' and ')
  }

  /** The same in detail: `remove 1 part and change 3 files: 1 added, 1 changed, 1 removed`. */
  inDetail(): string {
    const kinds = Object.entries(this.counts).filter(([, count]) => count > 0)
    const listed = kinds.map(([how, count]) => `${countInWords(count)} ${how}`).join(', ')
    return `${this.inWords()}${listed === '' ? '' : `: ${listed}`}`
  }
}

/** A size in words; a symlink has none. */
export function sizeInWords(size: string | number | bigint | undefined): string {
  return size === undefined ? 'symlink' : bytesInWords(Number(size))
}

/** The sizes of a change: `1.1 → 1.3 kB` where the unit stays. */
export function sizesInWords({ before, after }: Pick<FileChange, 'before' | 'after'>): string {
  if (before === undefined || after === undefined) return before ?? after ?? ''
  if (before === after) return before
  const [, unit] = before.split(' ')
  return after.endsWith(` ${unit}`) ? `${before.split(' ')[0]} → ${after}` : `${before} → ${after}`
}
