import { renameSync } from 'node:fs'
import { join } from 'node:path'
import type { DeployError } from '../../../core/errors.ts'
import type { Log } from '../../../core/log.ts'
import { makePrivateDirectories } from '../../files/durable-files.ts'
import { toHostError } from '../../files/system-errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import type { Layout } from '../layout.ts'
import { type InstalledChange, withInstalled } from './host-record.ts'
import { fileOf, type HostRecord, readRecordFile, writeRecordFile } from './record-file.ts'

/** A host whose record is compared, and the log for a difference. */
export interface RecordedHost {
  readonly layout: Layout
  readonly log: Log
}

/**
 * Writes the record again as a run found it when it locked the host, unless the file contains that, or that with what
 * the run has committed since. Anything else was written by another process, which may not write there: sets it aside,
 * even if it could be a record. Throws file system errors; the file is then as it was.
 */
export async function restoreRecord(
  { layout, log }: RecordedHost,
  known: HostRecord,
  committed?: InstalledChange,
): Promise<void> {
  const found = tryToRead(layout)
  if (found === known) return
  const expected = [known, ...(committed === undefined ? [] : [withInstalled(known, committed)])]
  if (found !== undefined && expected.some(record => rowsOf(record) === rowsOf(found))) return
  const aside = await setAside(layout)
  try {
    await writeRecordFile(layout, known)
  } catch (error) {
    if (aside !== undefined) renameSync(aside, layout.installed)
    throw error
  }
  const what = aside === undefined ? 'removed' : 'changed'
  const where = aside === undefined ? '' : ` What was there is now ${aside}.`
  log.warning(
    `Another process has ${what} ${layout.installed} while a deployment had this host, so it was written again.${where} Find out which process writes there.`,
  )
}

/** Does the same without a commit to compare. Never throws: returns why the record could not be written. */
export async function tryToRestoreRecord(host: RecordedHost, known: HostRecord): Promise<DeployError | undefined> {
  try {
    await restoreRecord(host, known)
    return undefined
  } catch (error) {
    return toHostError(error, `writing ${host.layout.installed} again`)
  }
}

/** Undefined if the file cannot be read, or is not a record. */
function tryToRead(layout: Layout): HostRecord | undefined {
  try {
    return readRecordFile(layout)
  } catch {
    return undefined
  }
}

/** Without `discard` and `unrestored`, which change without a commit. */
function rowsOf(record: HostRecord): string {
  const { installed, removed, projects } = fileOf(record)
  return JSON.stringify([installed, removed, projects])
}

/** Returns the new path, or undefined if there was nothing. */
async function setAside({ installed, snapshots }: Layout): Promise<string | undefined> {
  if (!pathExistsSync(installed)) return undefined
  const folder = join(snapshots, 'set-aside')
  await makePrivateDirectories(folder)
  const aside = join(folder, `${Date.now()}-installed.json`)
  renameSync(installed, aside)
  return aside
}
