import { mkdirSync } from 'node:fs'
import type { Log } from '../../../core/log.ts'
import { toHostError } from '../../files/system-errors.ts'
import { finishCommitted } from '../../host/cleanup.ts'
import { type Installation, readHostRecord } from '../../host/installed/host-record.ts'
import { fileOf } from '../../host/installed/record-file.ts'
import { tryToRestoreRecord } from '../../host/installed/restore-record.ts'
import { stagingPath } from '../../host/layout.ts'
import { findIdleSteps } from '../../steps/idle-steps.ts'
import type { InstallOrder, StepContext } from '../../steps/step-context.ts'
import { beginTransaction, type Transaction } from '../../transaction/transaction.ts'
import type { RunningDeployment } from '../deployment.ts'
import { emptyStaging, endJournal } from '../recovery/leftovers.ts'
import type { BegunDeployment } from './begun.ts'

/** The host while one deployment changes it. */
export interface HostSession extends Omit<BegunDeployment, 'claimHost'> {
  /** An empty private folder of this deployment, on the file system of the project root. */
  readonly stagingFolder: string
  readonly transaction: Transaction
  /** The context that the plan's steps work with. */
  stepContext(order: InstallOrder): StepContext
  /**
   * Records the parts that a commit installed or removed. Resolves to true if every discarded snapshot was moved away
   * or is recorded for later runs. The next run repeats whatever fails or throws here, and the outcome does not change.
   */
  finish(installation: Installation): Promise<boolean>
  /**
   * Empties the staging folder of a deployment whose recorded end leaves nothing to undo. If a kept path is lost,
   * leaves the folder as it is, because the folder may contain a copy of that path. Never throws.
   */
  makeRoom(): Promise<void>
  /**
   * Ends a session that leaves nothing to recover. Writes the host's record again if another process has changed it.
   * Then gives up the staging folder, removes the journal, and only after that deletes the staged files. If a kept path
   * is lost, sets the staged files aside instead. Never throws: logs a warning about anything that cannot be written or
   * removed, and leaves it to the next run. The outcome does not change.
   */
  settle(): Promise<void>
}

/** Opens the locked and recovered host for the changes of a deployment. Throws file system errors. */
export async function openSession(deployment: RunningDeployment, begun: BegunDeployment): Promise<HostSession> {
  const { host, record } = deployment
  const { layout, log } = host
  const { deployment_id: id } = record.facts
  const stagingFolder = stagingPath(layout, id)
  mkdirSync(stagingFolder, { mode: 0o700 })
  const journal = await begun.claimHost()
  await journal.append({ record: 'host', file: fileOf(readHostRecord(layout)) })
  const transaction = beginTransaction({ root: layout.root, journal, log })
  return {
    ...begun,
    stagingFolder,
    transaction,
    stepContext: order => ({
      ...{ deployment, order, transaction, stagingFolder },
      idle: findIdleSteps(deployment, order),
      results: new Map(),
    }),
    finish: async installation => await finishCommitted(host, installation, { record: readHostRecord(layout) }),
    async makeRoom() {
      if (transaction.lost.length === 0) await orWarn(log, async () => await emptyStaging(host, id))
    },
    async settle() {
      begun.abandon()
      const unwritten = await tryToRestoreRecord(host, { record: readHostRecord(layout) })
      if (unwritten !== undefined) return log.warning(`${unwritten.message} The next run writes that file.`)
      const hasLost = transaction.lost.length > 0
      await orWarn(log, async () => await endJournal(host, { id, hasLost }))
    },
  }
}

async function orWarn(log: Log, act: () => Promise<void>): Promise<void> {
  try {
    await act()
  } catch (error) {
    log.warning(`The cleanup is not complete; later runs continue it: ${toHostError(error, 'cleaning up').message}`)
  }
}
