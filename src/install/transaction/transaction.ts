import type { DeployError } from '../../core/errors.ts'
import { announceable, applyChanges, type Change, type PlannedChange, placesIn } from '../changes/change.ts'
import { isSamePlace, type Place } from '../host/layout.ts'
import type { Installation } from '../host/record.ts'
import { type AnnouncedChange, announcementOf, numberedIn } from '../journal/records.ts'
import { changeService, planServiceChange, type ServiceChange } from '../services/changes.ts'
import type { RestoredCheck } from '../services/health.ts'
import type { NamedService, ServiceAction } from '../services/supervise.ts'
import { type ChangeLog, undoChanges } from './undo.ts'

/** The changes that a deployment makes to the host outside its staging folder: all of them stay, or all are undone. */
export interface Transaction {
  /** Whether anything that the host runs has been changed so far. */
  readonly changed: boolean
  /**
   * Announces independent changes durably, in one record of the journal. Then makes them, one right after another.
   * Calls `reach` with each change before the change is examined, and again before it is made. If the examination shows
   * that a change cannot be made, announces no change and throws.
   */
  apply(changes: readonly PlannedChange[], reach?: (change: PlannedChange) => void): Promise<void>
  /**
   * Announces durably in the journal that a service is about to change, and whether it is running now. Then performs
   * the action. Returns the service's state before it.
   */
  supervise(named: NamedService, action: ServiceAction, signal: AbortSignal): Promise<ServiceChange>
  /** Notes how to check the old version after a rollback. Not journaled: a recovery has its own host config. */
  noteHealthchecks(checks: readonly RestoredCheck[]): void
  /** The places that a tree was moved out of or into, or was about to be. */
  readonly places: readonly Place[]
  /** The host's files that an undo could not put back, one sentence each. */
  readonly lost: readonly string[]
  /** Why an undo is not durable. */
  readonly unsynced: readonly DeployError[]
  readonly services: readonly ServiceChange[]
  readonly healthchecks: readonly RestoredCheck[]
  /** The point of no return: one durable record. */
  commit(installation: Installation): Promise<void>
  /**
   * Undoes every change, newest first; returns whether any change had been made. If a change cannot be undone, throws
   * RollbackError `rollback_failed`, which lists the changes that are not undone.
   */
  readonly undo: () => Promise<boolean>
}

export function beginTransaction(changeLog: ChangeLog): Transaction {
  const { root, journal, log } = changeLog
  const changes: AnnouncedChange[] = []
  const places: Place[] = []
  const services: ServiceChange[] = []
  const healthchecks: RestoredCheck[] = []
  const lost: string[] = []
  const unsynced: DeployError[] = []
  const noting = {
    ...changeLog,
    onLost: (problem: string) => void lost.push(problem),
    onUnsynced: (error: DeployError) => void unsynced.push(error),
  }
  return {
    places,
    lost,
    unsynced,
    services,
    healthchecks,
    get changed() {
      return changes.some(({ change }) => change.type !== 'make_directory')
    },
    async apply(planned, reach = () => undefined) {
      const announced = await announce(changeLog, planned, reach)
      changes.push(...announced)
      const exact = announced.map(({ change }) => change)
      addNew(places, placesIn(exact))
      const reachNth = (index: number): void => reach(planned[index] as PlannedChange)
      for (const path of await applyChanges(root, exact, reachNth))
        log.warning(`Another process put files in the way of this deployment. They were moved to ${path}.`)
    },
    async supervise(named, action, signal) {
      const change = await planServiceChange({ ...named, action }, services, signal)
      const { part, was_running } = change
      await journal.append({ record: 'service', part, was_running })
      services.push(change)
      await changeService(change, action, { log, signal })
      return change
    },
    noteHealthchecks(checks) {
      healthchecks.push(...checks)
    },
    async commit({ rows, removed, discard, project }) {
      const at = new Date().toISOString()
      await journal.append({
        record: 'commit',
        at,
        rows: [...rows],
        removed: [...removed],
        discard: [...discard],
        ...(project && { project }),
      })
    },
    // A bound function adds no frame to the stack of the undo.
    undo: undoChanges.bind(undefined, noting, changes),
  }
}

/** Announces changes in one durable record of the journal. Announces none if one of them cannot be made. */
async function announce(
  { root, journal }: ChangeLog,
  planned: readonly PlannedChange[],
  reach: (change: PlannedChange) => void,
): Promise<AnnouncedChange[]> {
  const changes: Change[] = []
  for (const change of planned) {
    reach(change)
    changes.push(await announceable(root, change))
  }
  const [first, ...others] = changes
  if (first === undefined) return []
  const record = announcementOf([first, ...others])
  const seq = await journal.append(record)
  if (seq === undefined) throw new Error('A change could not be announced.')
  return numberedIn(record, seq)
}

function addNew(known: Place[], places: readonly Place[]): void {
  known.push(...places.filter(place => !known.some(other => isSamePlace(other, place))))
}
