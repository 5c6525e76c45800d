import { renameSync } from 'node:fs'
import { join } from 'node:path'
import { type DeployError, errnoOf } from '../../../core/errors.ts'
import type { Log } from '../../../core/log.ts'
import { makePrivateDirectories } from '../../files/durable-files.ts'
import { isSystemError, toHostError } from '../../files/system-errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import type { Layout } from '../layout.ts'
import { type Installation, withInstalled, withPending } from './host-record.ts'
import { fileOf, type HostRecord, readRecordFile, writeRecordFile } from './record-file.ts'

/** A host whose record is compared, and the log for a difference. */
export interface RecordedHost {
  readonly layout: Layout
  readonly log: Log
}

/** The record as known to a run that holds, or held, the host's lock. */
export interface KnownRecord {
  readonly record: HostRecord
}

/**
 * Writes the record again as the run knows it, unless the file already contains that record, with or without the run's
 * later commit and notes. Any other content is from another process, which must not write there. This function then
 * sets the file aside, even if the file contains a valid record. Throws file system errors. After an error, the file is
 * as it was.
 */
export async function restoreRecord(
  { layout, log }: RecordedHost,
  known: KnownRecord,
  committed?: Installation,
): Promise<void> {
  const found = tryToRead(layout)
  if (found === known.record || (found !== undefined && isOfRun(found, known, committed))) return
  const aside = await setAside(layout)
  try {
    await writeRecordFile(layout, known.record)
  } catch (error) {
    if (aside !== undefined) renameSync(aside, layout.installed)
    throw error
  }
  const deed = aside === undefined ? 'removed' : 'changed'
  const where = aside === undefined ? '' : ` The changed file is now ${aside}.`
  log.warning(
    `Another process ${deed} ${layout.installed} after a deployment had begun, so the file was written again.${where} Find out which process did that.`,
  )
}

/** Does the same as `restoreRecord` without a commit to compare. Never throws: returns the error instead. */
export async function tryToRestoreRecord(host: RecordedHost, known: KnownRecord): Promise<DeployError | undefined> {
  try {
    await restoreRecord(host, known)
    return undefined
  } catch (error) {
    return toHostError(error, `writing ${host.layout.installed} again`)
  }
}

/** Returns undefined if the file is not a record, or is not for this user. Throws any other error of the system. */
function tryToRead(layout: Layout): HostRecord | undefined {
  try {
    return readRecordFile(layout)
  } catch (error) {
    const cause = error instanceof Error ? error.cause : undefined
    if (isSystemError(cause) && !['EACCES', 'EPERM'].includes(errnoOf(cause) ?? '')) throw error
    return undefined
  }
}

/**
 * True if all differences may come from the run itself. A run also forgets discarded snapshots that are gone, and notes
 * which services are pending.
 */
function isOfRun(found: HostRecord, { record }: KnownRecord, committed?: Installation): boolean {
  const expected = [record, ...(committed === undefined ? [] : [withInstalled(record, committed)])]
  const mayDiscard = new Set([...record.discard, ...(committed?.discard ?? [])])
  return expected.some(known => rowsOf(known) === rowsOf(found)) && found.discard.every(path => mayDiscard.has(path))
}

function rowsOf(record: HostRecord): string {
  const { installed, removed, projects } = fileOf(record)
  return JSON.stringify([withPending(installed, () => false), removed, projects])
}

/** Returns the file's new path, or undefined if there was no file. */
async function setAside({ installed, snapshots }: Layout): Promise<string | undefined> {
  if (!pathExistsSync(installed)) return undefined
  const folder = join(snapshots, 'set-aside')
  await makePrivateDirectories(folder)
  const aside = join(folder, `${Date.now()}-installed.json`)
  renameSync(installed, aside)
  return aside
}
