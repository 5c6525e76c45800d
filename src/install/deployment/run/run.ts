import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import type { Installation } from '../../host/installed/host-record.ts'
import { UntouchableHostError } from '../../host/ownership/untouchable-host.ts'
import { checkRoot, prepareHost } from '../../host/readiness.ts'
import { closeUntouched } from '../../reports/close.ts'
import type { InstallOrder } from '../../steps/step-context.ts'
import type { DeploymentEnd } from '../../transaction/end.ts'
import type { EndedDeployment, RunningDeployment, TerminalState } from '../deployment.ts'
import { isInDoubt } from '../recovery/dead-run.ts'
import { recoverBeforeRefusal } from '../recovery/recover-host.ts'
import { causeOf, commit, conclude, failedEnd, type SettledEnding, undo } from './ending.ts'
import { HostLock, type HostSession, openSession } from './session.ts'

/** The phases of a deployment under one contract, or of a rollback. Each phase takes the result of an earlier one. */
export interface Flow<Checked> {
  /** Checks the operator's own files, before the host is locked. Throws to refuse the deployment. */
  check(): Promise<Checked>
  /**
   * Examines the host, fetches and verifies the artifact, and turns its files into parts to install. Changes only
   * `folder`, which exists and is private.
   */
  prepare(checked: Checked, folder: string): Promise<InstallOrder>
  /** Runs the plan and makes every change through the session's transaction. Returns the installation to commit. */
  install(order: InstallOrder, session: HostSession): Promise<Installation>
  /** Enters the final state. */
  end(state: TerminalState): Promise<void>
}

/**
 * Runs a deployment on its host. Takes the lock before anything is fetched, and has it until the end. Recovers what a
 * dead run left, runs the contract's flow, commits or rolls back, and reports. However the deployment ends, the host
 * runs exactly the old version or exactly the new one, or the outcome says `inconsistent`. Never throws for a failure
 * of the run: the result contains the error.
 */
export async function runDeployment<Checked>(
  deployment: RunningDeployment,
  flow: Flow<Checked>,
): Promise<EndedDeployment> {
  const { host, tools } = deployment
  const lock = new HostLock(deployment)
  try {
    for (const accepted of checkRoot(host)) tools.log.warning(accepted)
    const checked = await flow.check()
    await prepareHost(host, tools.log)
    await lock.take()
    return await runLocked(await openSession(deployment), checked, { deployment, flow })
  } catch (error) {
    return await endUnchanged(error, deployment, lock)
  } finally {
    lock.release()
  }
}

/** A run that has locked its host. */
interface Running<Checked> {
  readonly deployment: RunningDeployment
  readonly flow: Flow<Checked>
}

/** Prepares, installs and commits, or rolls back; then reports. */
async function runLocked<Checked>(
  session: HostSession,
  checked: Checked,
  { deployment, flow }: Running<Checked>,
): Promise<EndedDeployment> {
  let ending: SettledEnding
  try {
    const order = await flow.prepare(checked, session.stagingFolder)
    const installation = await flow.install(order, session)
    ending = await commit(deployment, session, installation)
    await flow.end('succeeded')
  } catch (error) {
    ending = await undo(deployment, session, causeOf(deployment, error))
    if (deployment.state !== 'pending') await flow.end(ending.end.outcome === 'rolled_back' ? 'rolled_back' : 'failed')
  }
  const isNoted = await session.noteEnd(ending.end, ending.isUnfinished)
  // The staged tree may have filled the disk. Nothing needs that tree anymore, and the reports need space.
  if (isNoted && ending.settled && ending.error?.code === 'disk_full') await session.makeRoom()
  const result = await conclude(deployment, ending, attempts => session.noteReported(attempts))
  const isReported = result.reportPath !== undefined
  // If there is no local report, the next run writes it, provided that the journal says how this run ended.
  if (ending.settled && (isReported || !isNoted)) await session.settle()
  else session.abandon()
  return result
}

/** Ends and reports a run that could not open the host for its changes. */
async function endUnchanged(thrown: unknown, deployment: RunningDeployment, lock: HostLock): Promise<EndedDeployment> {
  const { host, record, tools } = deployment
  const error = causeOf(deployment, thrown)
  const failed = failedEnd(deployment, error)
  const end = thrown instanceof UntouchableHostError ? thrown : await recovered(deployment, failed, lock)
  if (!(end instanceof UntouchableHostError) && pathExistsSync(host.layout.root))
    return await conclude(deployment, { end, error })
  const untouched = { record, end: end instanceof UntouchableHostError ? failed : end }
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
