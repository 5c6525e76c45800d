import { RollbackError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { applyChange, type Change, describeChange, requirePossible, undoChange } from './changes.ts'
import type { InstalledRow } from './installed.ts'
import type { Journal } from './journal.ts'

/** What a deployment does to the host outside its staging folder: all of it is kept, or all of it is taken back. */
export interface Transaction {
  /** Whether anything that the host runs was changed so far. */
  readonly changed: boolean
  /** Announces a change in the journal, durably, then makes it. One that cannot be made is refused unannounced. */
  apply(change: Change): Promise<void>
  /** The point of no return: one durable record. `discard` names what the cleanup removes, relative to the project root. */
  commit(row: InstalledRow, discard: readonly string[]): Promise<void>
  /**
   * Takes every change back, newest first; returns whether there was anything to take back.
   * Throws RollbackError `rollback_failed` with all that could not be undone.
   */
  rollback(): Promise<boolean>
}

export function beginTransaction(root: string, journal: Journal): Transaction {
  const changes: Change[] = []
  return {
    get changed() {
      return changes.some(change => change.type !== 'make_directory')
    },
    async apply(change) {
      await requirePossible(root, change)
      await journal.append({ record: 'change', change })
      changes.push(change)
      await applyChange(root, change)
    },
    async commit(row, discard) {
      await journal.append({ record: 'commit', at: new Date().toISOString(), row, discard: [...discard] })
    },
    rollback: () => undoChanges(root, changes, journal),
  }
}

/**
 * Takes announced changes back, newest first, whether or not they were made, and removes each from `pending` once it is;
 * so a repetition goes on where the last one stopped. Returns whether any of them had been made. Notes each in the
 * journal: undone twice, a change could take the restored version for its own.
 * Stops at the first that cannot be undone, because the older ones build on it; throws RollbackError `rollback_failed` naming what remains.
 */
export async function undoChanges(root: string, pending: Change[], journal: Journal): Promise<boolean> {
  let wasChanged = false
  for (let change = pending.at(-1); change !== undefined; change = pending.at(-1)) {
    try {
      const wasMade = await undoChange(root, change)
      await journal.append({ record: 'undone', change, was_made: wasMade })
      wasChanged ||= wasMade
    } catch (error) {
      throw rollbackFailed(pending, error)
    }
    pending.pop()
  }
  return wasChanged
}

function rollbackFailed(pending: readonly Change[], error: unknown): RollbackError {
  const found = cleanForeignText(error instanceof Error ? error.message : String(error))
  const left = pending.map(describeChange).reverse().join('; ')
  return new RollbackError(
    'rollback_failed',
    `The host could not be brought back to the old version: ${found}. Still as the new version left it: ${left}. ` +
      'Remove the cause and run the deployment again: it repairs this first.',
    { cause: error },
  )
}
