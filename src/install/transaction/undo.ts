import { RollbackError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { asSentence, cleanForeignText } from '../../core/text.ts'
import { describeChange, describeLost, describeUndo, isBack, isMade, undoChange } from '../changes/change.ts'
import type { Undone } from '../changes/move.ts'
import type { Journal } from '../journal/journal.ts'
import { type AnnouncedChange, undoneRecord } from '../journal/records.ts'

/** The root under which changes are made, and the journal and the log that record changes. */
export interface ChangeLog {
  /** The project root, absolute. */
  readonly root: string
  readonly journal: Journal
  readonly log: Log
  /** Called with one sentence for each file of the host that an undo cannot put back. */
  readonly onLost?: (problem: string) => void
}

/**
 * Undoes announced changes, newest first. Some of them may not have been made. Once a change is undone, records that in
 * the journal and removes the change from `pending`, so that a later call continues where this call stopped. Returns
 * whether any of the changes had been made.
 *
 * If a change cannot be undone, undoes the other changes that were announced together with it, and stops before the
 * older changes, on which that change depends. Then, unless the host is exactly as it was, throws RollbackError
 * `rollback_failed`, which lists the remaining changes.
 */
export async function undoChanges(changeLog: ChangeLog, pending: AnnouncedChange[]): Promise<boolean> {
  const { root } = changeLog
  const latest = pending.at(-1)?.seq ?? 0
  let wasChanged = await dropUndone(changeLog, pending)
  let failure: { readonly seq: number; readonly error: unknown } | undefined
  for (const newest of [...pending].reverse()) {
    if (failure !== undefined && failure.seq !== newest.seq) break
    try {
      const undone = await undoChange(root, newest.change)
      await recordUndone(changeLog, newest, { undone, latest, pending })
      if (undone.wasMade) wasChanged = true
      pending.splice(pending.indexOf(newest), 1)
    } catch (error) {
      failure ??= { seq: newest.seq, error }
    }
  }
  if (failure === undefined) return wasChanged
  if (!isAnyMade(root, pending)) return true
  throw rollbackFailed(pending, failure.error)
}

/** The result of undoing one change, the number of the latest record of a change, and the changes still to undo. */
interface UndoneChange {
  readonly undone: Undone
  readonly latest: number
  readonly pending: readonly AnnouncedChange[]
}

/** Records in the journal that a change is undone. Throws if a kept path has to be put back first. */
async function recordUndone(
  { journal, log, onLost }: ChangeLog,
  announced: AnnouncedChange,
  { undone: { wasMade, setAside, ...missing }, latest, pending }: UndoneChange,
): Promise<void> {
  const { change } = announced
  const wasCertain = wasCertainlyMade(announced, latest)
  // The new version may have moved this path elsewhere. The undo stops here once, so that an operator can put the path
  // back. When the undo is repeated, no newer change is left, so it continues without the path.
  if (missing.lost !== undefined && wasCertain && change.type === 'move')
    throw new Error(
      `${change.from} was moved to ${change.to} for the new version, and is now at neither path. The new version may have renamed or removed it: put it back at one of these paths, or the next run restores the old version without it`,
    )
  for (const path of setAside)
    log.warning(`Another process put files in the way of the rollback. They were moved to ${path}.`)
  const lost = missing.lost ?? (wasCertain || announced.wasMade ? missing.replaced : undefined)
  const older = pending.map(other => other.change)
  const problem = lost && describeLost(lost, older)
  if (problem !== undefined) {
    log.warning(`${problem}.`)
    onLost?.(problem)
  }
  const undone = undoneRecord(announced, wasMade || wasCertain)
  await journal.append(problem === undefined ? undone : { ...undone, lost: problem })
  if (wasMade && lost === undefined && change.type !== 'make_directory') log.info(describeUndo(change))
}

/** True if any of these changes is still in effect. If none is, the host is exactly as it was before them. */
export function isAnyMade(root: string, pending: readonly AnnouncedChange[]): boolean {
  return pending.slice(0, firstUndone(root, pending)).some(({ change }) => isMade(root, change))
}

/**
 * Removes from `pending` the changes that an earlier undo has undone but not recorded, and records that they are
 * undone. Returns whether the oldest undone move had certainly been made, that is, whether a newer change was announced
 * after that move.
 */
async function dropUndone({ root, journal }: ChangeLog, pending: AnnouncedChange[]): Promise<boolean> {
  const latest = pending.at(-1)?.seq ?? 0
  const oldest = pending[findBack(root, pending)]
  for (const change of pending.splice(firstUndone(root, pending)).reverse())
    await journal.append(undoneRecord(change, wasCertainlyMade(change, latest)))
  return oldest !== undefined && wasCertainlyMade(oldest, latest)
}

/**
 * True if another change was announced after this change's record. The creation of a directory does not count as made.
 */
function wasCertainlyMade({ seq, change }: AnnouncedChange, latest: number): boolean {
  return seq < latest && change.type !== 'make_directory'
}

/**
 * Returns the index from which every change is undone. An undo goes from the newest change to the oldest: when a change
 * is undone, so are all changes that were announced after it. Each of the changes that were announced together with
 * that change may or may not have been made, because any of them may have survived a power cut.
 */
function firstUndone(root: string, pending: readonly AnnouncedChange[]): number {
  const index = findBack(root, pending)
  if (index === -1) return pending.length
  const [{ seq, nth } = { seq: 0 }] = pending.slice(index)
  if (nth === undefined) return index
  const newer = pending.findIndex(change => change.seq > seq)
  return newer === -1 ? pending.length : newer
}

/**
 * Returns the index of the oldest move whose source is back in its place, or -1. A source that a newer change has put
 * there does not count.
 */
function findBack(root: string, pending: readonly AnnouncedChange[]): number {
  const isFree = (path: string, newer: readonly AnnouncedChange[]): boolean =>
    !newer.some(({ change }) => change.type === 'move' && change.to === path && isMade(root, change))
  return pending.findIndex(
    ({ change }, at) => change.type === 'move' && isBack(root, change) && isFree(change.from, pending.slice(at + 1)),
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
