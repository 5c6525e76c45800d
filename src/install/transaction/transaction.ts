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

/** What a deployment does to the host outside its staging folder: all of it is kept, or all of it is taken back. */
export interface Transaction {
  /** Whether anything that the host runs was changed so far. */
  readonly changed: boolean
  /** Announces a change in the journal, durably, then makes it. One that cannot be made is refused unannounced. */
  apply(change: Change): Promise<void>
  /** Announces in the journal, durably, what is done to a service and how it was before, then has it done. */
  supervise(service: Service, action: ServiceAction, signal: AbortSignal): Promise<void>
  /** Notes by what the old version is to be checked, should this one be taken back. */
  noteHealthchecks(checks: readonly RestoredCheck[]): Promise<void>
  /** What a tree was moved out of or into, or was about to be. */
  readonly places: readonly Place[]
  readonly services: readonly ServiceChange[]
  readonly healthchecks: readonly RestoredCheck[]
  /** The point of no return: one durable record. */
  commit(installation: Installation): Promise<void>
  /**
   * Takes every change back, newest first; returns whether there was anything to take back.
   * Throws RollbackError `rollback_failed` with all that could not be undone.
   */
  rollback(): Promise<boolean>
}

export function beginTransaction(root: string, journal: Journal, log: Log): Transaction {
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
    rollback: () => undoChanges(root, changes, journal, log),
  }
}

/**
 * Takes announced changes back, newest first, whether or not they were made, and removes each from `pending` once it is;
 * so a repetition goes on where the last one stopped. Returns whether any of them had been made. Notes each in the
 * journal: undone twice, a change could take the restored version for its own.
 * Stops at the first that cannot be undone, because the older ones build on it; throws RollbackError `rollback_failed` naming what remains.
 */
export async function undoChanges(root: string, pending: Change[], journal: Journal, log: Log): Promise<boolean> {
  let wasChanged = false
  for (let change = pending.at(-1); change !== undefined; change = pending.at(-1)) {
    try {
      const { wasMade, setAside } = await undoChange(root, change)
      if (setAside !== null)
        log.warning(`Another process had put something in the place of the old version; it is now in ${setAside}.`)
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
