import { mkdirSync } from 'node:fs'
import { type Log, monotonicMs } from '../../core/log.ts'
import { toHostError } from '../files/errors.ts'
import { stagingPath } from '../host/layout.ts'
import { describeOther, type HeldLock } from '../host/lock.ts'
import { requireSafeHost } from '../host/ownership.ts'
import { holdHostRecord, type Installation, releaseHostRecord } from '../host/record.ts'
import type { DeploymentEnd } from '../journal/facts.ts'
import { finishCommitted, pruneAside } from '../recovery/cleanup.ts'
import { emptyStaging, endJournal, recoverDeadRun } from '../recovery/recover.ts'
import { holdLock } from '../recovery/recover-host.ts'
import type { InstallOrder, StepContext } from '../steps/context.ts'
import { findIdleSteps } from '../steps/idle.ts'
import { beginTransaction, type Transaction } from '../transaction/transaction.ts'
import type { RunningDeployment } from './deployment.ts'
import { retentionRule } from './installation.ts'

/** The lock of one deployment on its host. */
export class HostLock {
  readonly #deployment: RunningDeployment
  #held: HeldLock | undefined

  constructor(deployment: RunningDeployment) {
    this.#deployment = deployment
  }

  get isHeld(): boolean {
    return this.#held !== undefined
  }

  /**
   * Takes the lock, and recovers what a dead run left. After this call, anything that was read from the host earlier may
   * be out of date. The host's record is read once, and used until `release`. Throws as `holdLock`, `requireSafeHost`, `recoverDeadRun` and `holdHostRecord` do. In that case, the
   * lock may be held.
   */
  async take(): Promise<void> {
    const { host, tools } = this.#deployment
    this.#held = await this.#acquire()
    // The wait for the lock may have been long.
    requireSafeHost(host)
    tools.observer.onBegun(this.#deployment.noteRunning())
    await recoverDeadRun(host)
    holdHostRecord(host.layout)
    // An earlier run may have been recovered meanwhile.
    this.#deployment.noteRunning()
  }

  release(): void {
    releaseHostRecord(this.#deployment.layout)
    this.#held?.release()
    this.#held = undefined
  }

  /** If the run has to wait for another run, records how long. */
  async #acquire(): Promise<HeldLock> {
    const { host, tools, request, record } = this.#deployment
    const { slug, id, requested_version: version } = record.facts
    const names = [slug ?? id, version].filter(name => name !== null)
    const deployment = names.length === 0 ? undefined : names.join(' ')
    const started = monotonicMs()
    let other: string | undefined
    const log = (line: string): void => {
      other ??= describeOther(host.layout.lock)
      tools.log.info(line)
    }
    try {
      return await holdLock(host, request.lockTimeoutMs, { signal: tools.signal, log, deployment })
    } finally {
      if (other !== undefined)
        await record.update({ waited: { duration_ms: Math.round(monotonicMs() - started), for: other } })
    }
  }
}

/** The host while one deployment changes it. */
export interface HostSession {
  /** An empty private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  readonly transaction: Transaction
  /** The context that the plan's steps work with. */
  stepContext(order: InstallOrder): StepContext
  /**
   * Records the parts that a commit installed or removed, and moves away what was set aside long ago. Resolves to true
   * if every discarded snapshot was moved away or is recorded for later runs. The next run repeats whatever fails or
   * throws here, and the outcome does not change.
   */
  finish(installation: Installation): Promise<boolean>
  /**
   * Records how the deployment ended, before anything is reported. If a later run has to report the deployment, that
   * run reports the same end. Resolves to true if the end was recorded. With `isUnfinished`, the later run also
   * restores the services.
   */
  noteEnd(end: DeploymentEnd, isUnfinished?: boolean): Promise<boolean>
  /** Records that the hub has accepted the report of the recorded end, so that the report is not sent again. */
  noteReported(attempts: number): Promise<void>
  /**
   * Frees the space of the staging folder of a deployment whose recorded end leaves nothing to undo, as far as this
   * takes at most 2 s. If a kept path is lost, leaves the folder as it is, because the folder may contain a copy of that
   * path. Never throws.
   */
  makeRoom(): Promise<void>
  /**
   * Ends a session that leaves nothing to recover. Moves the staging folder to the trash and removes the journal. If a
   * kept path is lost, sets the staged files aside instead. Never throws: logs a warning about anything that cannot be
   * moved or removed, and leaves it to the next run. The outcome does not change.
   */
  settle(): Promise<void>
  /** Leaves the journal for the next run. */
  abandon(): void
}

/**
 * Opens the locked and recovered host for a deployment, and begins the deployment's journal. From now on, whatever
 * happens to this run, its post step or another run can undo its changes and report it. Throws file system errors.
 */
export async function openSession(deployment: RunningDeployment): Promise<HostSession> {
  const { host, record, request } = deployment
  const { layout, log } = host
  const { deployment_id: id } = record.facts
  const stagingFolder = stagingPath(layout, id)
  mkdirSync(stagingFolder, { mode: 0o700 })
  const journal = await record.startJournal(
    { path: layout.journal, redact: host.secrets.redact },
    { reportAddress: host.sender?.address ?? null, keepPaths: request.keepPaths },
  )
  const transaction = beginTransaction({ root: layout.root, journal, log })
  return {
    stagingFolder,
    transaction,
    stepContext: order => ({
      ...{ deployment, order, transaction, stagingFolder },
      idle: findIdleSteps(deployment, order),
      results: new Map(),
    }),
    async finish(installation) {
      const isFinished = await finishCommitted(host, installation)
      await pruneAside(host, retentionRule(deployment))
      return isFinished
    },
    async noteEnd(end, isUnfinished = false) {
      const unfinished = isUnfinished ? { unfinished: true as const } : {}
      return (await journal.append({ record: 'end', end, ...unfinished })) !== undefined
    },
    async noteReported(attempts) {
      await journal.append({ record: 'reported', attempts })
    },
    async makeRoom() {
      if (transaction.lost.length === 0) await orWarn(log, async () => await emptyStaging(host, id))
    },
    async settle() {
      journal.close()
      const hasLost = transaction.lost.length > 0
      await orWarn(log, async () => await endJournal(host, id, { hasLost }))
    },
    abandon: () => journal.close(),
  }
}

async function orWarn(log: Log, act: () => Promise<void>): Promise<void> {
  try {
    await act()
  } catch (error) {
    log.warning(`The cleanup is not complete; later runs continue it: ${toHostError(error, 'cleaning up').message}`)
  }
}
