import { z } from 'zod/mini'
import { idSchema } from '../../core/identifiers.ts'
import { type Change, changeSchema, isRelated } from '../changes/change.ts'
import {
  installedRowSchema,
  keepPathSchema,
  projectVersionSchema,
  removedRowSchema,
  snapshotPathSchema,
  timeSchema,
} from '../host/rows.ts'
import { deploymentEndSchema, deploymentFactsSchema, stateEntrySchema, stepEntrySchema } from './facts.ts'

/** The first record of each journal. */
const beginSchema = z.lazy(() =>
  z.strictObject({
    record: z.literal('begin'),
    facts: deploymentFactsSchema,
    /** The address that receives the deployment's report; see ReportSender. */
    report_address: z.nullable(z.string()),
    keep_paths: z.array(keepPathSchema),
  }),
)

/**
 * The records of `journal.jsonl`, one in each line, oldest first. They hold facts, and never say what to execute or
 * contact. Unknown keys are refused.
 */
export const recordSchema = z.lazy(() =>
  z.discriminatedUnion('record', [
    beginSchema.def.getter(),
    z.strictObject({ record: z.literal('facts'), facts: z.partial(deploymentFactsSchema.def.getter()) }),
    z.extend(stateEntrySchema, { record: z.literal('state') }),
    z.extend(stepEntrySchema, { record: z.literal('step') }),
    /** Announces a change that is about to be made. */
    z.strictObject({ record: z.literal('change'), change: changeSchema }),
    /** Announces several independent changes. */
    z.strictObject({ record: z.literal('changes'), changes: z.array(changeSchema).check(z.minLength(2)) }),
    /**
     * Announces that a service is about to be started, stopped or restarted: the service of this part, or, for null,
     * the project-wide unit. What that is, only the host config of the run that recovers says.
     */
    z.strictObject({ record: z.literal('service'), part: z.nullable(idSchema), was_running: z.boolean() }),
    /**
     * The change that record number `of` announced, or the `nth` of several, counting from 0, is undone. `was_made`
     * says whether the change had been made at all; `lost` says which file of the host could not be put back.
     */
    z.strictObject({
      record: z.literal('undone'),
      of: z.int().check(z.positive()),
      nth: z.exactOptional(z.int().check(z.nonnegative())),
      was_made: z.boolean(),
      lost: z.exactOptional(z.string()),
    }),
    /** The point of no return: the new version is what this host runs. */
    z.strictObject({
      record: z.literal('commit'),
      at: timeSchema,
      rows: z.array(installedRowSchema),
      removed: z.array(removedRowSchema),
      discard: z.array(snapshotPathSchema),
      project: z.exactOptional(projectVersionSchema),
    }),
    /** The end of the run, recorded by the run or by a recovery before the report is sent. */
    z.strictObject({
      record: z.literal('end'),
      end: deploymentEndSchema,
      /**
       * The run, or an earlier recovery, did not restore or check all services, or its undo is not durable: the next
       * recovery has to do that.
       */
      unfinished: z.exactOptional(z.literal(true)),
    }),
    /** The hub has accepted the report of the run's end. */
    z.strictObject({ record: z.literal('reported'), attempts: z.int().check(z.positive()) }),
    /** The run `by`, perhaps this run in its post step, begins to roll this run back. */
    z.strictObject({ record: z.literal('recovery'), at: timeSchema, by: z.uuid() }),
  ]),
)
export type JournalRecord = z.infer<typeof recordSchema>
export type BeginRecord = z.infer<typeof beginSchema>
export type CommitRecord = Extract<JournalRecord, { record: 'commit' }>

/**
 * Records that announce a change or decide the outcome are on the disk before `append` returns, or `append` throws.
 * Other records are dropped if they cannot be written: a rollback must not depend on them.
 */
export const REQUIRED: ReadonlySet<JournalRecord['record']> = new Set(['change', 'changes', 'service', 'commit'])
/** The journal does not grow for these records: they use the room that announcements leave free. */
export const OF_UNDO: ReadonlySet<JournalRecord['record']> = new Set(['undone', 'recovery', 'end', 'reported'])
export const DURABLE: ReadonlySet<JournalRecord['record']> = new Set([...REQUIRED, ...OF_UNDO])

/**
 * Returns the commit, or undefined if there is none or if any change was undone: a run whose commit could not be made
 * durable rolls back.
 */
export function findCommit(records: readonly JournalRecord[]): CommitRecord | undefined {
  const wasUndone = records.some(entry => entry.record === 'undone')
  return wasUndone ? undefined : records.find(entry => entry.record === 'commit')
}

/**
 * Returns the changes that were announced and are not undone yet, oldest first. A change is undone only after all newer
 * changes of the same tree, so the record of its undo also counts for those whose own record could not be written.
 */
export function pendingChanges(records: readonly JournalRecord[]): AnnouncedChange[] {
  let pending: AnnouncedChange[] = []
  for (const [index, record] of records.entries()) {
    const announced = numberedIn(record, index + 1)
    if (announced.length > 0) pending = pending.map(change => ({ ...change, wasMade: true }))
    pending.push(...announced)
    if (record.record === 'undone') pending = withoutUndone(pending, record)
    // After this end, no change is left to undo, even if there was no room to record each undo.
    else if (record.record === 'end' && record.end.rollback?.restored !== false && !record.unfinished) pending = []
    else if (record.record === 'end') pending = pending.map(({ wasMade: _, ...change }) => change)
  }
  return pending
}

function withoutUndone(pending: AnnouncedChange[], record: UndoneRecord): AnnouncedChange[] {
  const undone = pending.find(change => isUndoneBy(change, record))
  if (undone === undefined) return pending
  return pending.filter(({ seq, change }) => seq < undone.seq || !isRelated(change, undone.change))
}

/** Announces one change, or several independent ones. */
type Announcement =
  | { readonly record: 'change'; readonly change: Change }
  | { readonly record: 'changes'; readonly changes: readonly Change[] }
type AnyRecord = Announcement | { readonly record: string }

/**
 * Records that a change is undone: the change that record number `of` announced, or the `nth` of several, counting from
 * 0.
 */
interface UndoneRecord {
  readonly of: number
  readonly nth?: number
}

/** A change with the number of the record that announced it, and its position if the record announced several. */
export interface AnnouncedChange {
  readonly seq: number
  readonly nth?: number
  readonly change: Change
  /**
   * The change was certainly made, because a newer change was announced after it. No longer set once a rollback has
   * stopped, because an operator may have undone the change by hand since then.
   */
  readonly wasMade?: true
}

/** Builds the record that announces these changes, at least one. */
export function announcementOf([change, ...others]: readonly [Change, ...Change[]]) {
  if (others.length === 0) return { record: 'change' as const, change }
  return { record: 'changes' as const, changes: [change, ...others] }
}

/** Returns the changes that a record announces; none if the record is not an announcement. */
export function announcedIn(record: AnyRecord): readonly Change[] {
  if (!isAnnouncement(record)) return []
  return record.record === 'change' ? [record.change] : record.changes
}

/** Returns the changes that a record announces, with the number of the record. */
export function numberedIn(record: AnyRecord, seq: number): AnnouncedChange[] {
  const changes = announcedIn(record)
  return changes.map((change, nth) => (changes.length === 1 ? { seq, change } : { seq, nth, change }))
}

/** Builds the record that says that a change is undone. */
export function undoneRecord({ seq, nth }: AnnouncedChange, wasMade: boolean) {
  return { record: 'undone' as const, of: seq, ...(nth === undefined ? {} : { nth }), was_made: wasMade }
}

/** True if this record of an undo is about this change. */
export function isUndoneBy({ seq, nth }: AnnouncedChange, undone: UndoneRecord): boolean {
  return undone.of === seq && undone.nth === nth
}

function isAnnouncement(record: AnyRecord): record is Announcement {
  return record.record === 'change' || record.record === 'changes'
}
