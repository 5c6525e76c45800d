import { type DeployError, toDeployError } from '../../core/errors.ts'
import { isSystemError, toHostError } from '../files/errors.ts'
import { hearSignals } from '../files/time-slice.ts'
import { pathExistsSync } from '../files/walk.ts'
import { UntouchableHostError } from '../host/ownership.ts'
import type { Installation } from '../host/record.ts'
import { withRemovable } from '../host/snapshots.ts'
import { buildEnd, type DeploymentEnd } from '../journal/facts.ts'
import { isInDoubt } from '../recovery/dead-run.ts'
import { recoverBeforeRefusal } from '../recovery/recover-host.ts'
import { closeDeployment, closeUntouched, type Unreported } from '../reports/close.ts'
import type { RunResult } from '../reports/result.ts'
import type { InstallOrder, StepContext } from '../steps/context.ts'
import { noticeSettings } from '../steps/idle.ts'
import { warnOfSkipped } from '../steps/loading.ts'
import { announceStickyPaths } from '../steps/snapshot.ts'
import { announceRemoved } from '../steps/switch.ts'
import { type RunEnd, rollBack } from '../transaction/rollback.ts'
import type { RunningDeployment, TerminalState } from './deployment.ts'
import { writeHandover } from './handover.ts'
import { buildInstallation, describeSnapshots } from './installation.ts'
import type { HostLock, HostSession } from './session.ts'

/** The phases of a deployment under one contract, or of a rollback. Each phase takes the result of an earlier one. */
export interface Flow<Checked> {
  /** Checks the operator's own files, before the host is locked. Throws to refuse the deployment. */
  check(): Promise<Checked>
  /**
   * Examines the host, fetches and verifies the artifact, and turns its files into parts to install. Changes only
   * `folder`, which exists and is private.
   */
  prepare(checked: Checked, folder: string): Promise<InstallOrder>
  /** Runs the plan, and makes every change through the context's transaction. */
  install(context: StepContext): Promise<void>
  /** Enters the final state. */
  end(state: TerminalState): Promise<void>
}

/** A run that has locked its host. */
interface Running<Checked> {
  readonly deployment: RunningDeployment
  readonly flow: Flow<Checked>
}

/** Prepares, installs and commits, or rolls back; then reports. */
export async function runLocked<Checked>(
  session: HostSession,
  checked: Checked,
  { deployment, flow }: Running<Checked>,
): Promise<RunResult> {
  let ending: RunEnd
  try {
    const order = await flow.prepare(checked, session.stagingFolder)
    announceStickyPaths(deployment, order)
    const context = session.stepContext(order)
    noticeSettings(context)
    await warnOfSkipped(context)
    await flow.install(context)
    ending = await commit(deployment, session, await buildInstallation(context))
    await flow.end('succeeded')
  } catch (error) {
    ending = await rollBackRun(deployment, session, causeOf(deployment, error))
    if (deployment.state !== 'pending') await flow.end(ending.end.outcome === 'rolled_back' ? 'rolled_back' : 'failed')
  }
  const isNoted = await session.noteEnd(ending.end, ending.isUnfinished)
  // The staged tree may have filled the disk. Nothing needs that tree anymore, and the reports need space.
  if (isNoted && isSettled(ending) && ending.error?.code === 'disk_full') await session.makeRoom()
  const result = await conclude(deployment, ending, {
    isLocked: true,
    onAccepted: attempts => session.noteReported(attempts),
  })
  const isReported = result.reportPath !== undefined
  // If there is no local report, the next run writes it, provided that the journal says how this run ended.
  if (isSettled(ending) && (isReported || !isNoted)) await session.settle()
  else session.abandon()
  return result
}

/** Ends and reports a run that could not open the host for its changes. */
export async function endUnchanged(thrown: unknown, deployment: RunningDeployment, lock: HostLock): Promise<RunResult> {
  const { host, record, tools } = deployment
  const { temporaryFolder } = tools.runner
  const error = await withRemovable(host.layout, causeOf(deployment, thrown))
  const failed = failedEnd(deployment, error)
  const end = thrown instanceof UntouchableHostError ? thrown : await recovered(deployment, failed, lock)
  if (!(end instanceof UntouchableHostError) && pathExistsSync(host.layout.root))
    return await conclude(deployment, { end, error }, { isLocked: lock.isHeld, temporaryFolder })
  const untouched = { record, temporaryFolder, end: end instanceof UntouchableHostError ? failed : end }
  const closed = await closeUntouched(host, untouched, known => tools.observer.onEnded({ ...known, error }))
  return { ...closed, error }
}

/**
 * Recovers the host at most once in each run: a run that has the lock has already recovered the host, or failed to. A
 * run that could not get the lock has waited long enough, and the live holder has recovered the host itself.
 */
async function recovered(
  { host }: RunningDeployment,
  failed: DeploymentEnd,
  { isHeld }: HostLock,
): Promise<DeploymentEnd | UntouchableHostError> {
  if (isHeld) return isInDoubt(host.layout) ? { ...failed, outcome: 'inconsistent' } : failed
  if (failed.error?.code === 'locked') return failed
  return await recoverBeforeRefusal(host, failed)
}

/** True if nothing is left to recover. */
function isSettled({ end, isUnfinished, isUncleaned }: RunEnd): boolean {
  return end.rollback?.restored !== false && !isUnfinished && !isUncleaned
}

/** Commits the steps' changes, after a last check for a cancel. */
async function commit(
  deployment: RunningDeployment,
  session: HostSession,
  installation: Installation,
): Promise<RunEnd> {
  await hearSignals()
  deployment.tools.signal.throwIfAborted()
  await session.transaction.commit(installation)
  deployment.tools.log.did(describeSnapshots(installation))
  announceRemoved(deployment, installation.removed)
  const isUncleaned = !(await cleanUp(deployment, session, installation))
  const { changed } = session.transaction
  return { end: buildEnd(deployment.tools.now(), { outcome: 'success', changed }), isUncleaned }
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
async function rollBackRun(
  deployment: RunningDeployment,
  { transaction, stagingFolder }: HostSession,
  thrown: DeployError,
): Promise<RunEnd> {
  const { layout, tools, request, record } = deployment
  if (deployment.state !== 'pending') tools.log.did('failed')
  if (transaction.changed || transaction.services.length > 0) tools.log.group('rolling back', 'at once')
  const { rollback, outcome, ...left } = await rollBack({
    layout,
    log: tools.log,
    grace: tools.grace,
    places: transaction.places,
    keepPaths: request.keepPaths,
    stagingFolder,
    byContent: false,
    of: record.facts,
    services: transaction.services,
    healthchecks: async () => transaction.healthchecks,
    undo: transaction.undo,
    lost: transaction.lost,
    unsynced: transaction.unsynced,
  })
  const cause = await withRemovable(layout, thrown)
  const end = {
    ...failedEnd(deployment, cause),
    // Undoing the transaction does not restore a tree that no transaction has moved.
    outcome: cause.code === 'inconsistent' ? cause.code : outcome,
    rollback,
    changed: rollback?.restored === false,
  }
  return { ...left, end, error: cause }
}

/**
 * Returns why a run fails: the cancel rather than its consequences. Call this function before the undo, because a
 * cancel during the undo is not the cause.
 */
function causeOf({ tools, layout }: RunningDeployment, thrown: unknown): DeployError {
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

/** Reports how a deployment ended. */
async function conclude(
  { host, record, tools }: RunningDeployment,
  { end, error, unchecked }: RunEnd,
  reporting: Pick<Unreported, 'isLocked' | 'onAccepted' | 'temporaryFolder'>,
): Promise<RunResult> {
  const address = host.sender?.address ?? null
  const handover = unchecked && tryToHandOver({ host, record }, unchecked)
  const closed = await closeDeployment(host, { record, end, address, ...reporting }, known =>
    tools.observer.onEnded({ ...known, error, handover }),
  )
  return { ...closed, error }
}

/** Returns undefined if `installed.json` cannot be read: a run that has ended must be reported in any case. */
function tryToHandOver(
  { host, record }: Pick<RunningDeployment, 'host' | 'record'>,
  unchecked: NonNullable<RunEnd['unchecked']>,
): string | undefined {
  try {
    return writeHandover(host.layout, record.facts, unchecked)
  } catch {
    return undefined
  }
}
