import { existsSync, mkdirSync } from 'node:fs'
import { toDeployError } from '../../core/errors.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { cleanStaging, finishCommitted } from '../host/cleanup.ts'
import type { Installation } from '../host/installed.ts'
import { type Layout, stagingPath } from '../host/layout.ts'
import { acquireLock } from '../host/lock.ts'
import { spendReserve } from '../host/reserve.ts'
import type { ClosedDeployment, ClosingHost } from '../reports/close.ts'
import { sendOutbox } from '../reports/outbox.ts'
import type { DeploymentEnd } from '../transaction/end.ts'
import { openJournal, removeJournal } from '../transaction/journal.ts'
import type { DeploymentRecord } from '../transaction/record.ts'
import { beginTransaction, type Transaction } from '../transaction/transaction.ts'
import { recover } from './recovery.ts'

const RECOVERY_LOCK_TIMEOUT_MS = 5000

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
  release(): void
}

export interface OpenDeployment {
  /** An empty private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  readonly transaction: Transaction
  /**
   * Cleans up after a commit. Resolves to whether it is done; what fails here, or throws, is for the next run to repeat
   * and does not change the outcome.
   */
  finish(installation: Installation): Promise<boolean>
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
  abandon(): void
}

/**
 * Locks a prepared host, ends what a dead run left (recovery), and sends the reports that wait in the outbox.
 * Throws DeploymentError `locked` or `inconsistent`.
 */
export async function openHostSession(request: SessionRequest): Promise<HostSession> {
  const { host, signal, runUrl, lockTimeoutMs } = request
  const log = (line: string): void => host.log.info(line)
  const lock = await orFromReserve(host.layout, () =>
    acquireLock({ path: host.layout.lock, timeoutMs: lockTimeoutMs, runUrl, signal, log }),
  )
  try {
    request.onLocked()
    await recover(host)
    if (host.sender !== undefined) await sendOutbox(host.layout, host.sender, host.log, signal)
  } catch (error) {
    lock.release()
    throw error
  }
  return { begin: (record, keepPaths) => beginDeployment(host, record, keepPaths), release: () => lock.release() }
}

/**
 * Ends what a dead run left, and nothing more; undefined when it left nothing. Waits 5 s for the lock at most: a live
 * holder recovers by itself. Throws DeploymentError `locked`, `inconsistent`, or what the disk says.
 */
export async function recoverHost(host: ClosingHost, runUrl: string | null): Promise<ClosedDeployment | undefined> {
  if (!pathExistsSync(host.layout.journal)) return undefined
  const log = (line: string): void => host.log.info(line)
  const lock = await orFromReserve(host.layout, () =>
    acquireLock({ path: host.layout.lock, timeoutMs: RECOVERY_LOCK_TIMEOUT_MS, runUrl, log }),
  )
  try {
    return await recover(host)
  } finally {
    lock.release()
  }
}

/**
 * Before a run is refused for reasons of its own: ends what a dead run left all the same. Where that fails, the end says
 * `inconsistent`, because the host may run neither version whole; a live holder of the lock sees to it itself.
 */
export async function recoverBeforeRefusal(
  host: ClosingHost,
  runUrl: string | null,
  end: DeploymentEnd,
): Promise<DeploymentEnd> {
  try {
    await recoverHost(host, runUrl)
    return end
  } catch (error) {
    const { code, message } = toDeployError(error)
    const isInDoubt = code !== 'locked' && existsSync(host.layout.journal)
    if (!isInDoubt || end.error === null) return end
    return {
      ...end,
      outcome: 'inconsistent',
      error: { ...end.error, message: `${end.error.message} Also: ${message}` },
    }
  }
}

/** On a full disk, once more with the reserve given up, where an interrupted deployment waits for it. */
async function orFromReserve<T>(layout: Layout, act: () => Promise<T>): Promise<T> {
  try {
    return await act()
  } catch (error) {
    const isWorthIt = toDeployError(error).code === 'disk_full' && pathExistsSync(layout.journal)
    if (!isWorthIt || !spendReserve(layout)) throw error
    return await act()
  }
}

async function beginDeployment(
  host: ClosingHost,
  record: DeploymentRecord,
  keepPaths: readonly string[],
): Promise<OpenDeployment> {
  const { layout } = host
  const stagingFolder = stagingPath(layout, record.facts.deployment_id)
  mkdirSync(stagingFolder, { mode: 0o700 })
  const journal = await openJournal(layout.journal)
  await record.startJournal(journal, { reportAddress: host.sender?.address ?? null, keepPaths })
  return {
    stagingFolder,
    transaction: beginTransaction(layout.root, journal, host.log),
    finish: installation => finishCommitted(layout, host.log, installation),
    noteEnd: end => journal.append({ record: 'end', end }),
    async settle() {
      journal.close()
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
