import { mkdirSync } from 'node:fs'
import { toDeployError } from '../../core/errors.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { cleanStaging, finishCommitted } from '../host/cleanup.ts'
import type { Installation } from '../host/installed.ts'
import { stagingPath } from '../host/layout.ts'
import { acquireLock } from '../host/lock.ts'
import { requireSafeHost } from '../host/ownership.ts'
import { spendReserve } from '../host/reserve.ts'
import type { Host } from '../reports/host.ts'
import { buildLocalReport, notSent } from '../reports/local-report.ts'
import { sendOutbox } from '../reports/outbox.ts'
import type { InstallOrder, StepContext } from '../steps/step-context.ts'
import { buildEnd, type DeploymentEnd } from '../transaction/end.ts'
import { openJournal, removeJournal } from '../transaction/journal.ts'
import { beginTransaction, type Transaction } from '../transaction/transaction.ts'
import type { RunningDeployment } from './deployment.ts'
import { recover } from './recovery.ts'

/** A host that is ours: locked, with nothing left over from an earlier run. */
export interface LockedHost {
  /** Starts the journal of the deployment; from now on another run can undo it. */
  openSession(): Promise<HostSession>
  release(): Promise<void>
}

/** The host while one deployment changes it. */
export interface HostSession {
  /** An empty private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  readonly transaction: Transaction
  /** What the steps of the plan work with. */
  stepContext(order: InstallOrder): StepContext
  /**
   * Cleans up after a commit. Resolves to whether that is complete; the next run repeats what fails here, or throws,
   * and the outcome does not change.
   */
  finish(installation: Installation): Promise<boolean>
  /**
   * Records how the deployment ended before anything is reported, so that a run which has to finish the reports says
   * the same. Resolves to whether it could be recorded.
   */
  noteEnd(end: DeploymentEnd): Promise<boolean>
  /**
   * Nothing is left to recover: removes the journal, and only then the staging folder, because the recovery of a
   * journal without its staged tree would mistake what is installed for that tree. Never throws: what cannot be removed
   * is a warning, is left to the next run and changes no outcome.
   */
  settle(): Promise<void>
  /** Leaves the journal for the next run. */
  abandon(): void
}

/**
 * Locks a prepared host for a deployment, recovers what a dead run left, and sends the reports that wait in the outbox.
 * Throws DeploymentError `locked` or `inconsistent`.
 */
export async function lockHost(deployment: RunningDeployment): Promise<LockedHost> {
  const { host, tools, request } = deployment
  const lock = await holdLock(host, request.lockTimeoutMs, tools.signal)
  try {
    // It may have taken long to get the lock.
    requireSafeHost(host)
    tools.observer.onLocked(interruptedReport(deployment))
    await recover(host)
    if (host.sender !== undefined) await sendOutbox({ ...host, sender: host.sender }, tools.signal)
  } catch (error) {
    await lock.release()
    throw error
  }
  return { openSession: async () => await openSession(deployment), release: async () => lock.release() }
}

/** Takes the lock. On a full disk with an interrupted deployment, spends the reserve that is kept for its recovery. */
export async function holdLock(host: Host, timeoutMs: number, signal?: AbortSignal): ReturnType<typeof acquireLock> {
  const { layout, runUrl } = host
  const log = (line: string): void => host.log.info(line)
  const acquire = async () => await acquireLock({ path: layout.lock, timeoutMs, runUrl, signal, log })
  try {
    return await acquire()
  } catch (error) {
    const isWorthIt = toDeployError(error).code === 'disk_full' && pathExistsSync(layout.journal)
    if (!isWorthIt || !spendReserve(layout)) throw error
    return await acquire()
  }
}

/** What a run that is killed from now on has reported. */
function interruptedReport({ record, tools }: RunningDeployment) {
  return buildLocalReport(record, buildEnd(tools.now(), { outcome: 'interrupted' }), notSent(null))
}

async function openSession(deployment: RunningDeployment): Promise<HostSession> {
  const { host, record, request } = deployment
  const { layout, log } = host
  const stagingFolder = stagingPath(layout, record.facts.deployment_id)
  mkdirSync(stagingFolder, { mode: 0o700 })
  const journal = await openJournal(layout.journal, host.redact)
  const { keepPaths } = request
  await record.startJournal(journal, { reportAddress: host.sender?.address ?? null, keepPaths })
  const transaction = beginTransaction({ root: layout.root, journal, log })
  return {
    stagingFolder,
    transaction,
    stepContext: order => ({ deployment, order, transaction, stagingFolder, results: new Map() }),
    finish: async installation => await finishCommitted(layout, log, installation),
    noteEnd: async end => await journal.append({ record: 'end', end }),
    async settle() {
      journal.close()
      try {
        await removeJournal(layout.journal)
        await cleanStaging(layout, log)
      } catch (error) {
        log.warning(`Not removed yet; later runs try again: ${toDeployError(error).message}`)
      }
    },
    abandon: () => journal.close(),
  }
}
