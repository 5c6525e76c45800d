import { type DeployError, toDeployError } from '../../../core/errors.ts'
import { isSystemError, toHostError } from '../../files/system-errors.ts'
import { hearSignals } from '../../files/time-slice.ts'
import type { Installation } from '../../host/installed/host-record.ts'
import { closeDeployment } from '../../reports/close.ts'
import type { RestoredCheck } from '../../services/healthchecks.ts'
import { announceRemoved } from '../../steps/switch/remove-part.ts'
import { buildEnd, type DeploymentEnd } from '../../transaction/end.ts'
import { rollBack } from '../../transaction/rollback.ts'
import type { EndedDeployment, RunningDeployment } from '../deployment.ts'
import { writeHandover } from '../handover.ts'
import { describeSnapshots } from '../installation.ts'
import type { HostSession } from './session.ts'

/** The end of a deployment, before it is reported. */
export interface Ending {
  readonly end: DeploymentEnd
  readonly error: DeployError | undefined
  /** The checks of the old version for which a cancelled run had no time. */
  readonly unchecked?: readonly RestoredCheck[] | undefined
}

/** `settled`: nothing is left to recover. `isUnfinished`: services still have to be restored. */
export type SettledEnding = Ending & { readonly settled: boolean; readonly isUnfinished?: boolean | undefined }

/** Commits the steps' changes, after a last check for a cancel. */
export async function commit(
  deployment: RunningDeployment,
  session: HostSession,
  installation: Installation,
): Promise<SettledEnding> {
  await hearSignals()
  deployment.tools.signal.throwIfAborted()
  await session.transaction.commit(installation)
  deployment.tools.log.did(describeSnapshots(installation))
  announceRemoved(deployment, installation.removed)
  const settled = await cleanUp(deployment, session, installation)
  const { changed } = session.transaction
  return { end: buildEnd(deployment.tools.now(), { outcome: 'success', changed }), error: undefined, settled }
}

/** Cleans up after the commit. The next run finishes whatever fails here, and the outcome does not change. */
async function cleanUp(
  { tools }: RunningDeployment,
  session: HostSession,
  installation: Installation,
): Promise<boolean> {
  try {
    return await session.finish(installation)
  } catch (error) {
    const { message } = toHostError(error, 'cleaning up')
    tools.log.warning(`This run succeeded, but its cleanup failed; the next run finishes the cleanup. ${message}`)
    return false
  }
}

/** Rolls back the steps' changes. */
export async function undo(
  deployment: RunningDeployment,
  { transaction, stagingFolder }: HostSession,
  cause: DeployError,
): Promise<SettledEnding> {
  const { layout, tools, keepPaths, record } = deployment
  if (deployment.state !== 'pending') tools.log.did('failed')
  if (transaction.changed || transaction.services.length > 0) tools.log.group('rolling back', 'at once')
  const { rollback, unchecked, isUnfinished, ...undone } = await rollBack({
    layout,
    log: tools.log,
    grace: tools.grace,
    places: transaction.places,
    keepPaths,
    stagingFolder,
    byContent: false,
    of: record.facts,
    services: transaction.services,
    healthchecks: async () => transaction.healthchecks,
    undo: () => transaction.rollback(),
    lost: transaction.lost,
  })
  const isRestored = rollback?.restored !== false
  // Undoing the transaction does not restore a tree that no transaction has moved.
  const outcome = cause.code === 'inconsistent' ? cause.code : undone.outcome
  const end = { ...failedEnd(deployment, cause), outcome, rollback, changed: !isRestored }
  return { end, error: cause, settled: isRestored && !isUnfinished, unchecked, isUnfinished }
}

/**
 * Returns why a run fails: the cancel rather than its consequences. Call this function before the undo, because a
 * cancel during the undo is not the cause.
 */
export function causeOf({ tools, layout }: RunningDeployment, thrown: unknown): DeployError {
  if (tools.signal.aborted) return toDeployError(tools.signal.reason)
  return isSystemError(thrown) ? toHostError(thrown, `deploying below ${layout.root}`) : toDeployError(thrown)
}

/**
 * Builds the end of a run that failed; the caller adds the result of a rollback. The outcome is `inconsistent` if the
 * error has that code, because an earlier run may have left the host with neither version intact. Otherwise, the
 * outcome is `failed`.
 */
export function failedEnd(
  { record, tools }: Pick<RunningDeployment, 'record' | 'tools'>,
  { code, message }: DeployError,
): DeploymentEnd {
  const step = record.steps.find(({ status }) => status === 'failed')?.id ?? null
  const outcome = code === 'inconsistent' ? code : 'failed'
  const sentence = step === null ? message : `${step}: ${message}`
  return buildEnd(tools.now(), { outcome, error: { code, message: sentence, step } })
}

/** Reports how a deployment ended. `onAccepted` gets the number of attempts after which the hub accepted the report. */
export async function conclude(
  { host, record, tools }: RunningDeployment,
  { end, error, unchecked }: Ending,
  onAccepted?: (attempts: number) => Promise<void>,
): Promise<EndedDeployment> {
  const address = host.sender?.address ?? null
  const handover = unchecked && writeHandover(host.layout, record.facts, unchecked)
  const closed = await closeDeployment(host, { record, end, address, onAccepted }, known =>
    tools.observer.onEnded({ ...known, error, handover }),
  )
  return { ...closed, error }
}
