import { closeSync, constants, openSync, readFileSync, unlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../../core/errors.ts'
import { syncDirectory } from '../../files/durable-files.ts'
import { isFrom } from '../../host/installed/origin.ts'
import { placeOf } from '../../host/installed/row-place.ts'
import { installedRowSchema, projectVersionSchema, removedRowSchema } from '../../host/installed/rows.ts'
import { placeName } from '../../host/layout.ts'
import { processIdentitySchema } from '../../host/locks/process-identity.ts'
import { snapshotPathSchema, timeSchema } from '../../host/record-fields.ts'
import { restoredCheckSchema } from '../../services/healthchecks.ts'
import { serviceChangeSchema } from '../../services/service-changes.ts'
import { changeSchema, isOfDeployment } from '../changes/change.ts'
import { deploymentEndSchema } from '../end.ts'
import { deploymentFactsSchema, stateEntrySchema, stepEntrySchema } from '../facts.ts'
import { type AnnouncedChange, announcedIn, isUndoneBy, numberedIn } from './announcement.ts'
import { JournalFile, writeNewJournalSync } from './journal-file.ts'
import { formatLine, JournalDamage, type JournalText, parseJournalText } from './journal-line.ts'
import { type Redact, redactRecord } from './redaction.ts'

/** The records of `journal.jsonl`, one in each line, oldest first. */
const recordSchema = z.lazy(() =>
  z.discriminatedUnion('record', [
    z.object({
      record: z.literal('begin'),
      facts: deploymentFactsSchema,
      /** Where its report goes; see ReportSender. */
      report_address: z.nullable(z.string()),
      keep_paths: z.array(z.string()),
      /** Older versions of this action do not write it. */
      process: z.exactOptional(processIdentitySchema),
    }),
    z.object({ record: z.literal('facts'), facts: z.partial(deploymentFactsSchema.def.getter()) }),
    z.extend(stateEntrySchema, { record: z.literal('state') }),
    z.extend(stepEntrySchema, { record: z.literal('step') }),
    /** Announces a change that is about to be made. */
    z.object({ record: z.literal('change'), change: changeSchema }),
    /** Announces several, of which none depends on another. */
    z.object({ record: z.literal('changes'), changes: z.array(changeSchema).check(z.minLength(2)) }),
    /** Announces that a service is about to be started, stopped or restarted. */
    z.object({ record: z.literal('service'), change: serviceChangeSchema }),
    /** How to check the old version after a rollback. */
    z.object({ record: z.literal('healthchecks'), checks: z.array(restoredCheckSchema) }),
    /**
     * The change that the record number `of` announced, or the `nth` of them, counted from 0, is undone; `was_made` says
     * whether it had been made at all.
     */
    z.object({
      record: z.literal('undone'),
      of: z.int().check(z.positive()),
      nth: z.exactOptional(z.int().check(z.nonnegative())),
      was_made: z.boolean(),
    }),
    /** The point of no return: the new version is what this host runs. */
    z.object({
      record: z.literal('commit'),
      at: timeSchema,
      rows: z.array(installedRowSchema),
      removed: z.exactOptional(z.array(removedRowSchema)),
      discard: z.array(snapshotPathSchema),
      project: z.exactOptional(projectVersionSchema),
    }),
    /** How the run ended by its own account, written before it reports to anybody. */
    z.object({
      record: z.literal('end'),
      end: deploymentEndSchema,
      /** It was cancelled and had no time to restore all services: a recovery has to. */
      unfinished: z.exactOptional(z.literal(true)),
    }),
    /** The hub has accepted the report of that end. */
    z.object({ record: z.literal('reported'), attempts: z.int().check(z.positive()) }),
    /** Another run, `by`, begins to roll this one back. */
    z.object({ record: z.literal('recovery'), at: timeSchema, by: z.uuid() }),
  ]),
)
export type JournalRecord = z.infer<typeof recordSchema>
export type BeginRecord = Extract<JournalRecord, { record: 'begin' }>
export type CommitRecord = Extract<JournalRecord, { record: 'commit' }>

/**
 * Records that announce a change or decide the outcome are on the disk before `append` returns, or it throws. The
 * others are given up where they cannot be written: a rollback must not need any.
 */
const REQUIRED: ReadonlySet<JournalRecord['record']> = new Set(['change', 'changes', 'service', 'commit'])
const DURABLE: ReadonlySet<JournalRecord['record']> = new Set([...REQUIRED, 'undone', 'recovery', 'end', 'reported'])
/** What is written after the last announcement goes into the room that was allocated with it. */
const OF_UNDO: ReadonlySet<JournalRecord['record']> = new Set(['undone', 'recovery', 'end', 'reported'])

export interface Journal {
  /** The record's number, or undefined where it was not written; one that is required is durable, or this throws. */
  append(record: JournalRecord): Promise<number | undefined>
  close(): void
}

/** The journal of this run. */
export interface OwnJournal extends Journal {
  /** Gives it another name, under which it is durable when this resolves. */
  rename(path: string): Promise<void>
  /** Removes a journal that announces nothing, and closes it. */
  discard(): void
}

/**
 * Starts the journal of a deployment, redacted (0600), with room for an undo. Only `rename` makes it durable: until then,
 * the deployment announces nothing.
 */
export function startJournal(path: string, begin: BeginRecord, redact: Redact = text => text): OwnJournal {
  writeNewJournalSync(path, formatLine(1, redactRecord(begin, redact)))
  return continueJournal(path, 1, redact)
}

/** Opens the journal of a dead run to append after its last whole record. Throws as `readJournal` does. */
export function openJournal(path: string, redact: Redact = text => text): Journal {
  return continueJournal(path, readJournal(path)?.length ?? 0, redact)
}

/**
 * The records of the journal, or undefined when there is none. Leaves out a torn last line, whose change was never
 * made. Throws JournalDamage when anything else in it is not what this action writes.
 */
export function readJournal(path: string): JournalRecord[] | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  const parsed = z.array(recordSchema).safeParse(text.records)
  if (!parsed.success) {
    const [place = 0, ...field] = parsed.error.issues[0]?.path ?? []
    throw new JournalDamage(`its line ${Number(place) + 1} has an unexpected ${field.join('.') || 'content'}`)
  }
  verifySequence(parsed.data)
  verifyBehind(text)
  return parsed.data
}

/** How the journal begins, whatever follows; undefined when that is not known. Never throws. */
export function readBegin(path: string): BeginRecord | undefined {
  try {
    const begin = recordSchema.safeParse(readText(path)?.records[0]).data
    return begin?.record === 'begin' ? begin : undefined
  } catch {
    return undefined
  }
}

/**
 * The changes that were announced behind a torn record. None of them was made, unless a damaged disk has torn that record
 * later.
 */
export function readUnprovenChanges(path: string): AnnouncedChange[] {
  const { records = [], behind = [] } = readText(path) ?? {}
  return recordsIn(behind).flatMap((record, index) => numberedIn(record, records.length + 1 + index))
}

/** What follows a durable record was written when that one was on the disk, and so was all before it. */
function verifyBehind({ records, behind }: JournalText): void {
  const isProven = recordsIn(behind.slice(0, -1)).some(({ record }) => DURABLE.has(record))
  if (isProven) throw new JournalDamage(`its line ${records.length + 1} was written, and has been damaged since`)
}

function recordsIn(values: readonly unknown[]): JournalRecord[] {
  return values.flatMap(value => recordSchema.safeParse(value).data ?? [])
}

function readText(path: string): JournalText | undefined {
  const bytes = readBytes(path)
  return bytes && parseJournalText(bytes)
}

/** A run rolls back itself when its commit record could not be made durable; the journal then shows the undo. */
export function findCommit(records: readonly JournalRecord[]): CommitRecord | undefined {
  const wasUndone = records.some(entry => entry.record === 'undone')
  return wasUndone ? undefined : records.find(entry => entry.record === 'commit')
}

/** The changes that were announced and not undone yet, oldest first. */
export function pendingChanges(records: readonly JournalRecord[]): AnnouncedChange[] {
  let pending: AnnouncedChange[] = []
  for (const [index, record] of records.entries()) {
    pending.push(...numberedIn(record, index + 1))
    if (record.record === 'undone') pending = pending.filter(change => !isUndoneBy(change, record))
    // There may have been no room to note each.
    else if (record.record === 'end' && record.end.rollback?.restored !== false) pending = []
  }
  return pending
}

/** Ends a deployment: without a journal there is nothing to recover. */
export async function removeJournal(path: string): Promise<void> {
  try {
    unlinkSync(path)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return
    throw error
  }
  await syncDirectory(dirname(path))
}

function continueJournal(path: string, records: number, redact: Redact): OwnJournal {
  const file = new JournalFile(path)
  let seq = records
  return {
    async append(record) {
      const { record: type } = record
      const line = Buffer.from(formatLine(seq + 1, redactRecord(record, redact)))
      try {
        if (!(await file.makeRoom(line.length, OF_UNDO.has(type) ? 'undo' : 'announce'))) return undefined
        await file.write(line, DURABLE.has(type))
        return ++seq
      } catch (error) {
        file.tryErase()
        if (REQUIRED.has(type)) throw error
        return undefined
      }
    },
    rename: async name => await file.rename(name),
    discard: () => file.discard(),
    close: () => file.close(),
  }
}

/**
 * What no single record shows: one deployment, its own staging folder and parts, and no undo of what was never announced.
 */
function verifySequence(records: readonly JournalRecord[]): void {
  const [begin, ...later] = records
  if (begin?.record !== 'begin') throw new JournalDamage('its first record does not begin a deployment')
  for (const [index, record] of later.entries()) {
    if (record.record === 'begin') throw new JournalDamage(`its line ${index + 2} begins another deployment`)
    if (!announcedIn(record).every(change => isOfDeployment(change, begin.facts.deployment_id)))
      throw new JournalDamage(`its line ${index + 2} moves files of another deployment`)
    if (record.record === 'undone' && !isOfAnnounced(record, records))
      throw new JournalDamage(`its line ${index + 2} undoes what was not announced`)
    if (record.record === 'commit' && !isOfItsParts(record, begin.facts))
      throw new JournalDamage(`its line ${index + 2} commits what is not of this deployment`)
  }
}

function isOfAnnounced(
  undone: Extract<JournalRecord, { record: 'undone' }>,
  records: readonly JournalRecord[],
): boolean {
  const announcement = records[undone.of - 1]
  return announcement !== undefined && numberedIn(announcement, undone.of).some(change => isUndoneBy(change, undone))
}

/**
 * A commit installs and removes only what is of its origin, and discards only snapshots of that; a single artifact is in
 * the place that it began with.
 */
function isOfItsParts(
  { rows, removed = [], discard, project }: CommitRecord,
  { contract, slug, kind, id }: BeginRecord['facts'],
): boolean {
  const parts = [...rows, ...removed]
  const folders = parts.map(part => `.hub-deploy/snapshots/${placeName(placeOf(part))}/`)
  const isPlaced = (part: (typeof parts)[number]): boolean => part.kind === kind && (id === null || part.id === id)
  return (
    (project === undefined || (contract === 'project' && project.slug === slug)) &&
    discard.every(path => folders.some(folder => path.startsWith(folder))) &&
    parts.every(part => slug !== null && isFrom(part, { contract, slug })) &&
    (contract === 'project' || parts.every(isPlaced))
  )
}

function readBytes(path: string): Buffer | undefined {
  try {
    const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      return readFileSync(fd)
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}
