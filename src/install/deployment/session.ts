import { mkdirSync } from 'node:fs'
import { toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { finishCommitted } from '../host/cleanup.ts'
import type { Installation } from '../host/installed/host-record.ts'
import { stagingPath } from '../host/layout.ts'
import { acquireLock } from '../host/locks/lock.ts'
import { requireSafeHost } from '../host/ownership/ownership.ts'
import { spendReserve } from '../host/reserve.ts'
import type { Host } from '../reports/host.ts'
import { sendOutbox } from '../reports/outbox.ts'
import { findIdleSteps } from '../steps/idle-steps.ts'
import type { InstallOrder, StepContext } from '../steps/step-context.ts'
import type { DeploymentEnd } from '../transaction/end.ts'
import { beginTransaction, type Transaction } from '../transaction/transaction.ts'
import type { RunningDeployment } from './deployment.ts'
import { emptyStaging, endJournal } from './leftovers.ts'
import { recover } from './recovery.ts'

/** A host that is ours: locked. */
export interface LockedHost {
  /**
   * Recovers what a dead run left, and sends the reports that wait in the outbox. Throws DeploymentError `inconsistent`,
   * or what the disk says.
   */
  recover(): Promise<void>
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
   * Records what a commit installed. Resolves to whether that is complete; the next run repeats what fails here, or throws,
   * and the outcome does not change.
   */
  finish(installation: Installation): Promise<boolean>
  /**
   * Records how the deployment ended before anything is reported, so that a run which has to finish the reports says
   * the same. Resolves to whether it could be recorded. With `isUnfinished`, such a run also restores the services.
   */
  noteEnd(end: DeploymentEnd, isUnfinished?: boolean): Promise<boolean>
  /** Records that the hub has accepted the report of that end, which is then not sent again. */
  noteReported(attempts: number): Promise<void>
  /** Empties the staging folder of a deployment whose recorded end leaves nothing to undo. Never throws. */
  makeRoom(): Promise<void>
  /**
   * Nothing is left to recover: gives up the staging folder, removes the journal, and only then deletes what was staged.
   * Never throws: what cannot be removed is a warning, is left to the next run and changes no outcome.
   */
  settle(): Promise<void>
  /** Leaves the journal for the next run. */
  abandon(): void
}

/** Locks a prepared host for a deployment. Throws DeploymentError `locked`, or what the disk says. */
export async function lockHost(deployment: RunningDeployment): Promise<LockedHost> {
  const { host, tools, request } = deployment
  const lock = await holdLock(host, request.lockTimeoutMs, tools.signal)
  try {
    // It may have taken long to get the lock.
    requireSafeHost(host)
    tools.observer.onLocked(deployment.noteRunning())
  } catch (error) {
    await lock.release()
    throw error
  }
  return {
    async recover() {
      await recover(host)
      if (host.sender !== undefined) await sendOutbox({ ...host, sender: host.sender }, tools.signal)
    },
    openSession: async () => await openSession(deployment),
    release: async () => lock.release(),
  }
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

async function openSession(deployment: RunningDeployment): Promise<HostSession> {
  const { host, record } = deployment
  const { layout, log } = host
  const { deployment_id: id } = record.facts
  // An earlier run may have been recovered meanwhile.
  deployment.noteRunning()
  const stagingFolder = stagingPath(layout, id)
  mkdirSync(stagingFolder, { mode: 0o700 })
  const reportAddress = host.sender?.address ?? null
  const journal = await record.startJournal(host, { reportAddress, keepPaths: deployment.keepPaths })
  const transaction = beginTransaction({ root: layout.root, journal, log })
  return {
    stagingFolder,
    transaction,
    stepContext: order => ({
      ...{ deployment, order, transaction, stagingFolder },
      idle: findIdleSteps(deployment, order),
      results: new Map(),
    }),
    finish: async installation => await finishCommitted(layout, log, installation),
    async noteEnd(end, isUnfinished = false) {
      const unfinished = isUnfinished ? { unfinished: true as const } : {}
      return (await journal.append({ record: 'end', end, ...unfinished })) !== undefined
    },
    async noteReported(attempts) {
      await journal.append({ record: 'reported', attempts })
    },
    makeRoom: async () => await orWarn(log, async () => await emptyStaging(host, id)),
    async settle() {
      journal.close()
      await orWarn(log, async () => await endJournal(host, id))
    },
    abandon: () => journal.close(),
  }
}

async function orWarn(log: Log, act: () => Promise<void>): Promise<void> {
  try {
    await act()
  } catch (error) {
    log.warning(`Not removed yet; later runs try again: ${toDeployError(error).message}`)
  }
}
