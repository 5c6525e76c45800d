import { closeSync, ftruncateSync, openSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { syncDirectory, syncFile } from '../files/durable-files.ts'
import { installedRowSchema, removedRowSchema } from '../host/installed.ts'
import { restoredCheckSchema } from '../services/healthchecks.ts'
import { serviceChangeSchema } from '../services/service-changes.ts'
import { type Change, changeSchema, relativePathSchema } from './change.ts'
import { deploymentEndSchema } from './end.ts'
import { deploymentFactsSchema, stateEntrySchema, stepEntrySchema } from './facts.ts'
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
    }),
    z.object({ record: z.literal('facts'), facts: z.partial(deploymentFactsSchema.def.getter()) }),
    z.extend(stateEntrySchema, { record: z.literal('state') }),
    z.extend(stepEntrySchema, { record: z.literal('step') }),
    /** Announces a change that is about to be made. */
    z.object({ record: z.literal('change'), change: changeSchema }),
    /** Announces that a service is about to be started, stopped or restarted. */
    z.object({ record: z.literal('service'), change: serviceChangeSchema }),
    /** How to check the old version after a rollback. */
    z.object({ record: z.literal('healthchecks'), checks: z.array(restoredCheckSchema) }),
    /** The newest change that is not undone yet is undone; `was_made` says whether it had been made at all. */
    z.object({ record: z.literal('undone'), change: changeSchema, was_made: z.boolean() }),
    /** The point of no return: the new version is what this host runs. */
    z.object({
      record: z.literal('commit'),
      at: z.string(),
      rows: z.array(installedRowSchema),
      removed: z.exactOptional(z.array(removedRowSchema)),
      discard: z.array(relativePathSchema),
    }),
    /** How the run ended by its own account, written before it reports to anybody. */
    z.object({ record: z.literal('end'), end: deploymentEndSchema }),
    z.object({ record: z.literal('recovery'), at: z.string() }),
  ]),
)
export type JournalRecord = z.infer<typeof recordSchema>

/**
 * Records that announce a change or decide the outcome are on the disk before `append` returns, or it throws. The
 * others add detail and are given up when there is no room for them: a rollback must not need any.
 */
const DURABLE: ReadonlySet<JournalRecord['record']> = new Set(['begin', 'change', 'service', 'commit', 'recovery'])
const SYNCED: ReadonlySet<JournalRecord['record']> = new Set([...DURABLE, 'undone'])

export interface Journal {
  /** Resolves to whether the record was written; one that must be durable is, or this throws. */
  append(record: JournalRecord): Promise<boolean>
  close(): void
}

/**
 * Opens the journal to append after its last whole record, redacted; creates it (0600) when there is none.
 */
export async function openJournal(path: string, redact: Redact = text => text): Promise<Journal> {
  const fd = openSync(path, 'a+', 0o600)
  let length = readFileSync(fd).lastIndexOf('\n') + 1
  ftruncateSync(fd, length)
  await syncDirectory(dirname(path))
  // Whether a torn record may follow the last whole one. It has to go before the next one is written.
  let isTorn = false
  const cut = (): void => {
    ftruncateSync(fd, length)
    isTorn = false
  }
  const tryCut = (): void => {
    try {
      cut()
    } catch {
      // It is cut before the next record.
    }
  }
  return {
    async append(record) {
      const line = Buffer.from(`${JSON.stringify(redactRecord(record, redact))}\n`)
      try {
        if (isTorn) cut()
        isTorn = true
        writeFileSync(fd, line)
        if (SYNCED.has(record.record)) await syncFile(fd)
        length += line.length
        isTorn = false
        return true
      } catch (error) {
        tryCut()
        if (DURABLE.has(record.record)) throw error
        return false
      }
    },
    close: () => closeSync(fd),
  }
}

/**
 * The records of the journal, or undefined when there is none or the run was killed before its first record was whole.
 * Leaves out a torn last line, whose change was never made. Throws when an earlier line is damaged, or the first one
 * does not begin a deployment.
 */
export function readJournal(path: string): JournalRecord[] | undefined {
  const lines = readText(path).split('\n').slice(0, -1)
  if (lines.length === 0) return undefined
  const records = lines.map(line => recordSchema.parse(JSON.parse(line)))
  if (records[0]?.record !== 'begin') throw new Error('its first record does not begin a deployment')
  return records
}

/** The changes that were announced and not undone yet, oldest first. */
export function pendingChanges(records: readonly JournalRecord[]): Change[] {
  const pending: Change[] = []
  for (const record of records) {
    if (record.record === 'change') pending.push(record.change)
    else if (record.record === 'undone') pending.pop()
    // There may have been no room to note each.
    else if (record.record === 'end' && record.end.rollback?.restored !== false) pending.length = 0
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

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return ''
    throw error
  }
}
