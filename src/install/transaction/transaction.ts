import { RollbackError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { Log } from '../../core/log.ts'
import type { Installation } from '../host/installed.ts'
import type { Place } from '../host/layout.ts'
import type { ServiceAction } from '../services/commands.ts'
import type { RestoredCheck } from '../services/healthchecks.ts'
import type { Service } from '../services/service.ts'
import { planServiceChange, type ServiceChange } from '../services/service-changes.ts'
import { superviseService } from '../services/supervise.ts'
import { announceable, applyChange, type Change, describeChange, placesIn, undoChange } from './change.ts'
import type { Journal } from './journal.ts'

/** Where changes are made, and where they are announced. */
export interface ChangeLog {
  /** The project root, absolute. */
  readonly root: string
  readonly journal: Journal
  readonly log: Log
}

/** What a deployment does to the host outside its staging folder: all of it stays, or all of it is undone. */
export interface Transaction {
  /** Whether anything that the host runs was changed so far. */
  readonly changed: boolean
  /** Announces a change in the journal, durably, then makes it. Refuses one that cannot be made, unannounced. */
  apply(change: Change): Promise<void>
  /** Announces in the journal, durably, an action on a service and how the service was before, then performs it. */
  supervise(service: Service, action: ServiceAction, signal: AbortSignal): Promise<void>
  /** Records how to check the old version after a rollback. */
  noteHealthchecks(checks: readonly RestoredCheck[]): Promise<void>
  /** Out of which or into which a tree was moved, or was about to be. */
  readonly places: readonly Place[]
  readonly services: readonly ServiceChange[]
  readonly healthchecks: readonly RestoredCheck[]
  /** The point of no return: one durable record. */
  commit(installation: Installation): Promise<void>
  /**
   * Undoes every change, newest first; returns whether there was anything to undo.
   * Throws RollbackError `rollback_failed` with all that could not be undone.
   */
  rollback(): Promise<boolean>
}

export function beginTransaction(changeLog: ChangeLog): Transaction {
  const { root, journal } = changeLog
  const changes: Change[] = []
  const places: Place[] = []
  const services: ServiceChange[] = []
  const healthchecks: RestoredCheck[] = []
  return {
    places,
    services,
    healthchecks,
    get changed() {
      return changes.some(change => change.type !== 'make_directory')
    },
    async apply(planned) {
      const change = announceable(root, planned)
      await journal.append({ record: 'change', change })
      changes.push(change)
      const isKnown = (place: Place): boolean =>
        places.some(({ shelf, id }) => shelf === place.shelf && id === place.id)
      places.push(...placesIn([change]).filter(place => !isKnown(place)))
      await applyChange(root, change)
    },
    async supervise(service, action, signal) {
      const change = await planServiceChange({ service, action }, services, signal)
      await journal.append({ record: 'service', change })
      services.push(change)
      await superviseService(change, { signal })
    },
    async noteHealthchecks(checks) {
      await journal.append({ record: 'healthchecks', checks: [...checks] })
      healthchecks.push(...checks)
    },
    async commit({ rows, removed, discard }) {
      const at = new Date().toISOString()
      await journal.append({ record: 'commit', at, rows: [...rows], removed: [...removed], discard: [...discard] })
    },
    async rollback() {
      return await undoChanges(changeLog, changes)
    },
  }
}

/**
 * Undoes announced changes, newest first, whether or not they were made, and removes each from `pending` once it is
 * undone, so that a repetition continues where the last one stopped. Returns whether any of them had been made. Records
 * each in the journal: undone twice, a change could mistake the restored version for its own.
 * Stops at the first that cannot be undone, because the older ones build on it: RollbackError `rollback_failed` names
 * what remains.
 */
export async function undoChanges({ root, journal, log }: ChangeLog, pending: Change[]): Promise<boolean> {
  let wasChanged = false
  for (let change = pending.at(-1); change !== undefined; change = pending.at(-1)) {
    try {
      const { wasMade, setAside } = await undoChange(root, change)
      if (setAside !== null)
        log.warning(`Another process put something where the old version belongs. It is now in ${setAside}.`)
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
    `The old version could not be restored: ${found}. Not undone: ${left}. ` +
      'Remove the cause and run the deployment again: it repairs this first.',
    { cause: error },
  )
}
