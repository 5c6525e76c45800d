import { setTimeout } from 'node:timers/promises'
import { type DeployError, RollbackError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { asSentence, cleanForeignText } from '../../core/text.ts'
import {
  type Change,
  describeChange,
  describeLost,
  describeUndo,
  isBack,
  isMade,
  isRelated,
  undoChange,
} from '../changes/change.ts'
import type { Undone } from '../changes/move.ts'
import { syncTrees } from '../files/durable.ts'
import { toHostError } from '../files/errors.ts'
import type { Journal } from '../journal/journal.ts'
import { type AnnouncedChange, type JournalRecord, undoneRecord } from '../journal/records.ts'

/** The root under which changes are made, and the journal and the log that record changes. */
export interface ChangeLog {
  /** The project root, absolute. */
  readonly root: string
  readonly journal: Journal
  readonly log: Log
  /** Called with one sentence for each file of the host that an undo cannot put back. */
  readonly onLost?: (problem: string) => void
  /** Called if changes are undone, but a power cut could bring them back. */
  readonly onUnsynced?: (error: DeployError) => void
}

type UndoRecord = Extract<JournalRecord, { record: 'undone' }>

/** The wait before another attempt: the system may lack memory or descriptors for a moment. */
const RETRY_AFTER_MS = 100

/**
 * Undoes announced changes, newest first. Some of them may not have been made. Once a change is undone durably, records
 * that in the journal and removes the change from `pending`, so that a later call continues where this call stopped.
 * Returns whether any of the changes had been made.
 *
 * If a change cannot be undone, goes on with the older changes that do not depend on it. Then tries what is left once
 * more, and again as long as that helps. Throws RollbackError `rollback_failed`, which lists the changes that are not
 * undone, unless the host is exactly as it was. Leaves changes whose undo cannot be made durable in `pending`, and calls
 * `onUnsynced`.
 */
export async function undoChanges(changeLog: ChangeLog, pending: AnnouncedChange[]): Promise<boolean> {
  const { root, journal } = changeLog
  const latest = pending.at(-1)?.seq ?? 0
  const unsynced = new Map<AnnouncedChange, UndoRecord>()
  let wasChanged = false
  for (let attempt = 1; ; attempt++) {
    const left = pending.filter(announced => !unsynced.has(announced))
    const failed: Change[] = []
    let cause: unknown
    for (const newest of left.toReversed()) {
      const { change } = newest
      if (failed.some(newer => isRelated(newer, change))) {
        failed.push(change)
        continue
      }
      try {
        const wasUndone = isUndoneBefore(root, newest, pending)
        const isCertain = wasCertainlyMade(newest, latest)
        wasChanged ||= isCertain && (wasUndone || isBack(root, change))
        const undone = wasUndone ? UNDONE_BEFORE : await undoChange(root, change)
        wasChanged ||= undone.wasMade
        const record = noteUndone(changeLog, newest, { undone, isCertain, older: left })
        // A recorded undo says that every newer change of the same tree is undone durably, too.
        const isAfterUnsynced = [...unsynced.keys()].some(newer => isRelated(newer.change, change))
        if (undone.unsynced === undefined && !isAfterUnsynced) await recordUndone(journal, pending, [newest, record])
        else unsynced.set(newest, record)
      } catch (error) {
        failed.push(change)
        cause ??= error
      }
    }
    if (failed.length > 0 && (attempt === 1 || failed.length < left.length)) {
      await setTimeout(RETRY_AFTER_MS)
      continue
    }
    await recordSynced(changeLog, pending, unsynced)
    const notUndone = left.filter(({ change }) => failed.includes(change))
    if (notUndone.length === 0) return wasChanged
    if (!mayBeMade(root, notUndone)) return true
    throw rollbackFailed(notUndone, cause)
  }
}

const UNDONE_BEFORE: Undone = { wasMade: false, setAside: [] }

async function recordUndone(
  journal: Journal,
  pending: AnnouncedChange[],
  [announced, record]: readonly [AnnouncedChange, UndoRecord],
): Promise<void> {
  await journal.append(record)
  pending.splice(pending.indexOf(announced), 1)
}

/** Makes undos durable that could not be synced one by one, and records them. */
async function recordSynced(
  { root, journal, onUnsynced }: ChangeLog,
  pending: AnnouncedChange[],
  unsynced: ReadonlyMap<AnnouncedChange, UndoRecord>,
): Promise<void> {
  if (unsynced.size === 0) return
  try {
    await syncTrees([root])
    for (const undone of unsynced) await recordUndone(journal, pending, undone)
  } catch (error) {
    onUnsynced?.(
      toHostError(error, 'making the restored files durable, so that a power cut does not undo the rollback'),
    )
  }
}

/** What the undo of one change has found. */
interface Finding {
  readonly undone: Undone
  /** Whether the change had certainly been made. */
  readonly isCertain: boolean
  /** The changes that may have moved the tree around the change's path. */
  readonly older: readonly AnnouncedChange[]
}

/**
 * Logs the undo of a change, and returns the record of it. Throws if a kept path has to be put back first.
 */
function noteUndone({ log, onLost }: ChangeLog, announced: AnnouncedChange, finding: Finding): UndoRecord {
  const { change } = announced
  const { isCertain, older } = finding
  const { wasMade, setAside, ...missing } = finding.undone
  // The new version may have moved this path elsewhere. The undo stops here once, so that an operator can put the path
  // back. When the undo is repeated, no newer change is left, so it continues without the path.
  if (missing.lost !== undefined && isCertain && change.type === 'move')
    throw new Error(
      `${change.from} was moved to ${change.to} for the new version, and is now at neither path. The new version may have renamed or removed it: put it back at one of these paths, or the next run restores the old version without it`,
    )
  for (const path of setAside)
    log.warning(`Another process put files in the way of the rollback. They were moved to ${path}.`)
  const lost = missing.lost ?? (isCertain || announced.wasMade ? missing.replaced : undefined)
  const problem =
    lost === undefined
      ? undefined
      : describeLost(
          lost,
          older.map(other => other.change),
        )
  if (problem !== undefined) {
    log.warning(`${problem}.`)
    onLost?.(problem)
  }
  if (wasMade && lost === undefined && change.type !== 'make_directory') log.info(describeUndo(change))
  const record = undoneRecord(announced, wasMade || isCertain)
  return problem === undefined ? record : { ...record, lost: problem }
}

/** True if any of these changes is still in effect. If none is, the host is exactly as it was before them. */
export function isAnyMade(root: string, pending: readonly AnnouncedChange[]): boolean {
  return pending.some(announced => !isUndoneBefore(root, announced, pending) && isMade(root, announced.change))
}

/** The same, but also true if that cannot be found out. */
function mayBeMade(root: string, pending: readonly AnnouncedChange[]): boolean {
  try {
    return isAnyMade(root, pending)
  } catch {
    return true
  }
}

/**
 * True if another change was announced after this change's record. The creation of a directory does not count as made.
 */
function wasCertainlyMade({ seq, change }: AnnouncedChange, latest: number): boolean {
  return seq < latest && change.type !== 'make_directory'
}

/**
 * True if an earlier undo has undone this change: it has undone an older move that could be undone only after this
 * change. The source of that move is back in its place, and no newer change has put it there. Without this rule, the
 * undo of a change could touch files that the old version has written since.
 */
function isUndoneBefore(root: string, { seq, change }: AnnouncedChange, pending: readonly AnnouncedChange[]): boolean {
  const isFree = (path: string, since: number): boolean =>
    !pending.some(
      newer =>
        newer.seq > since && newer.change.type === 'move' && newer.change.to === path && isMade(root, newer.change),
    )
  return pending.some(
    ({ seq: older, change: move }) =>
      older < seq && move.type === 'move' && isRelated(move, change) && isBack(root, move) && isFree(move.from, older),
  )
}

function rollbackFailed(pending: readonly AnnouncedChange[], error: unknown): RollbackError {
  const found = asSentence(cleanForeignText(error instanceof Error ? error.message : String(error)))
  const left = pending
    .map(({ change }) => describeChange(change))
    .reverse()
    .join('; ')
  return new RollbackError(
    'rollback_failed',
    `The old version could not be restored: ${found} Not undone: ${left}. ` +
      'Remove the cause and run again: the next run repairs the host first.',
    { cause: error },
  )
}
