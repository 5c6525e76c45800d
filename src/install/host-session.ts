import { mkdir } from 'node:fs/promises'
import { toDeployError } from '../core/errors.ts'
import { cleanStaging, finishCommitted } from './cleanup.ts'
import type { ClosingHost } from './close-deployment.ts'
import type { DeploymentEnd } from './deployment-end.ts'
import type { DeploymentRecord } from './deployment-record.ts'
import type { InstalledRow } from './installed.ts'
import { openJournal, removeJournal } from './journal.ts'
import { stagingPath } from './layout.ts'
import { acquireLock } from './lock.ts'
import { sendOutbox } from './outbox.ts'
import { recover } from './recovery.ts'
import { beginTransaction, type Transaction } from './transaction.ts'

export interface SessionRequest {
  host: ClosingHost
  lockTimeoutMs: number
  runUrl: string | null
  signal: AbortSignal
  /** Called as soon as the host is ours, before anything is recovered. */
  onLocked(): void
}

/** A host that is ours: locked, with nothing left over from an earlier run. */
export interface HostSession {
  /** Starts the journal of a deployment; from now on whoever comes next can take it back. */
  begin(record: DeploymentRecord, keepPaths: readonly string[]): Promise<OpenDeployment>
  /** Gives the host back. */
  release(): Promise<void>
}

export interface OpenDeployment {
  /** An empty private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  readonly transaction: Transaction
  /**
   * Cleans up after a commit. Resolves to whether it is done; what fails here, or throws, is for the next run to repeat
   * and does not change the outcome.
   */
  finish(row: InstalledRow, discard: readonly string[]): Promise<boolean>
  /**
   * Notes how the deployment ended before anybody is told, so that whoever has to finish the telling says the same.
   * Resolves to whether it could be noted.
   */
  noteEnd(end: DeploymentEnd): Promise<boolean>
  /**
   * Nothing is left to recover: removes the journal, and only then the staging folder, because a recovery of a journal
   * whose staged tree is gone would take what is in its place for that tree. Never throws: what cannot be removed is a
   * warning and left to the next run, and changes no outcome.
   */
  settle(): Promise<void>
  /** Leaves the journal for the next run. */
  abandon(): Promise<void>
}

/**
 * Locks a prepared host, ends what a dead run left (recovery), and sends the reports that wait in the outbox.
 * Throws DeploymentError `locked` or `inconsistent`.
 */
export async function openHostSession(request: SessionRequest): Promise<HostSession> {
  const { host, signal, runUrl, lockTimeoutMs } = request
  const log = (line: string): void => host.log.info(line)
  const lock = await acquireLock({ path: host.layout.lock, timeoutMs: lockTimeoutMs, runUrl, signal, log })
  try {
    request.onLocked()
    await recover(host)
    if (host.sender !== undefined) await sendOutbox(host.layout, host.sender, host.log)
  } catch (error) {
    await lock.release()
    throw error
  }
  return { begin: (record, keepPaths) => beginDeployment(host, record, keepPaths), release: () => lock.release() }
}

async function beginDeployment(
  host: ClosingHost,
  record: DeploymentRecord,
  keepPaths: readonly string[],
): Promise<OpenDeployment> {
  const { layout } = host
  const stagingFolder = stagingPath(layout, record.facts.deployment_id)
  await mkdir(stagingFolder, { mode: 0o700 })
  const journal = await openJournal(layout.journal)
  await record.startJournal(journal, { reportAddress: host.sender?.address ?? null, keepPaths })
  return {
    stagingFolder,
    transaction: beginTransaction(layout.root, journal),
    finish: (row, discard) => finishCommitted(layout, host.log, row, discard),
    noteEnd: end => journal.append({ record: 'end', end }),
    async settle() {
      await journal.close()
      try {
        await removeJournal(layout.journal)
        await cleanStaging(layout, host.log)
      } catch (error) {
        host.log.warning(`Not removed yet, the next run does it: ${toDeployError(error).message}`)
      }
    },
    abandon: () => journal.close(),
  }
}
