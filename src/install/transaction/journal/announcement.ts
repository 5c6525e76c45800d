import type { Change } from '../changes/change.ts'

/** Announces one change, or several independent ones. */
type Announcement =
  | { readonly record: 'change'; readonly change: Change }
  | { readonly record: 'changes'; readonly changes: readonly Change[] }
type JournalRecord = Announcement | { readonly record: string }

/**
 * Records that a change is undone: the change that record number `of` announced, or the `nth` of several, counting from
 * 0.
 */
interface Undone {
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
export function announcedIn(record: JournalRecord): readonly Change[] {
  if (!isAnnouncement(record)) return []
  return record.record === 'change' ? [record.change] : record.changes
}

/** Returns the changes that a record announces, with the number of the record. */
export function numberedIn(record: JournalRecord, seq: number): AnnouncedChange[] {
  const changes = announcedIn(record)
  return changes.map((change, nth) => (changes.length === 1 ? { seq, change } : { seq, nth, change }))
}

/** Builds the record that says that a change is undone. */
export function undoneRecord({ seq, nth }: AnnouncedChange, wasMade: boolean) {
  return { record: 'undone' as const, of: seq, ...(nth === undefined ? {} : { nth }), was_made: wasMade }
}

/** True if this record of an undo is about this change. */
export function isUndoneBy({ seq, nth }: AnnouncedChange, undone: Undone): boolean {
  return undone.of === seq && undone.nth === nth
}

function isAnnouncement(record: JournalRecord): record is Announcement {
  return record.record === 'change' || record.record === 'changes'
}
