import { type DeployError, toDeployError } from '../../core/errors.ts'
import { isSystemError, toHostError } from '../files/system-errors.ts'
import { hearSignals } from '../files/time-slice.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import type { Installation } from '../host/installed/host-record.ts'
import { requireSafeHost } from '../host/ownership/ownership.ts'
import { UntouchableHostError } from '../host/ownership/untouchable-host.ts'
import { prepareHost } from '../host/readiness.ts'
import { closeDeployment, closeUntouched } from '../reports/close.ts'
import type { RestoredCheck } from '../services/healthchecks.ts'
import type { InstallOrder } from '../steps/step-context.ts'
import { announceRemoved } from '../steps/switch/remove-part.ts'
import { buildEnd, type DeploymentEnd } from '../transaction/end.ts'
import { rollBack } from '../transaction/rollback.ts'
import { type BegunDeployment, beginDeployment } from './begun.ts'
import type { EndedDeployment, RunningDeployment, TerminalState } from './deployment.ts'
import { failedEnd } from './failed-end.ts'
import { writeHandover } from './handover.ts'
import { HostLock } from './host-lock.ts'
import { describeSnapshots } from './installation.ts'
import { isInDoubt } from './recovery/dead-run.ts'
import { recoverBeforeRefusal } from './recovery/recover-host.ts'
import { type HostSession, openSession } from './session.ts'
import { surveyHost } from './survey.ts'

/** A contract's part of a deployment, phase by phase; each takes what the one before returned. */
export interface Flow<Checked, Fetched extends FetchedFiles> {
  /** Refuses what the operator's own files show. */
  check(): Promise<Checked>
  /** Refuses what the host shows. It may be locked meanwhile or not: whatever passes is judged again in `prepare`. */
  survey(checked: Checked): Promise<void>
  /** Fetches and verifies the artifact. Another run may have the host meanwhile: changes nothing of it. */
  fetch(checked: Checked): Promise<Fetched>
  /** From the verified artifact to staged parts. Changes nothing but `folder`, which exists and is private. */
  prepare(fetched: Fetched, folder: string): Promise<InstallOrder>
  /** Runs the plan; makes every change through the session's transaction. Returns what to commit. */
  install(order: InstallOrder, session: HostSession): Promise<Installation>
  /** Enters the last state. */
  end(state: TerminalState): Promise<void>
}

/** What a fetch has opened. */
export interface FetchedFiles {
  /** May be called again. */
  close(): void
}

/**
 * Runs a deployment on its host: a look at the host, the fetch, then the lock, recovery of what a dead run left, the rest
 * of the contract's flow, commit or rollback, reports. So no run waits for the download of another one. However it ends,
 * the host runs exactly the old version or exactly the new one, or the outcome says `inconsistent`. Never throws for what
 * happens on the way: it is in the result.
 */
export async function runDeployment<Checked, Fetched extends FetchedFiles>(
  deployment: RunningDeployment,
  flow: Flow<Checked, Fetched>,
): Promise<EndedDeployment> {
  const lock = new HostLock(deployment)
  let begun: BegunDeployment | undefined
  let fetched: Fetched | undefined
  try {
    const checked = await prepareAndCheck(deployment, flow)
    await surveyHost(deployment, lock, () => flow.survey(checked))
    begun = await beginDeployment(deployment)
    fetched = await flow.fetch(checked)
    await lock.take(deployment.request.lockTimeoutMs)
    const session = await openSession(deployment, begun)
    return noteLeft(deployment, await runLocked(session, fetched, { deployment, flow }))
  } catch (error) {
    return noteLeft(deployment, await refuse(error, { deployment, flow, begun }))
  } finally {
    fetched?.close()
    lock.release()
  }
}

/** Whether a cancelled run that has the lock leaves a journal to its post step. */
function noteLeft({ tools, layout, isLocked }: RunningDeployment, ended: EndedDeployment): EndedDeployment {
  const mayLeave = isLocked && tools.signal.aborted && ended.report.outcome !== 'inconsistent'
  return { ...ended, isUnfinished: mayLeave && pathExistsSync(layout.journal) }
}

/** A run that is refused creates no project root. */
async function prepareAndCheck<Checked>(
  deployment: RunningDeployment,
  flow: Pick<Flow<Checked, FetchedFiles>, 'check'>,
): Promise<Checked> {
  const { host, tools } = deployment
  if (pathExistsSync(host.layout.root)) {
    await prepareHost(host, tools.log)
    return await flow.check()
  }
  requireSafeHost(host)
  const checked = await flow.check()
  await prepareHost(host, tools.log)
  return checked
}

/** A run that could not open the host for its changes. */
interface Refused extends Running {
  /** Undefined when it had not begun. */
  readonly begun: BegunDeployment | undefined
}

/** Ends a run that has changed nothing. */
async function refuse(thrown: unknown, refused: Refused): Promise<EndedDeployment> {
  const { deployment, flow, begun } = refused
  const error = causeOf(deployment, thrown)
  if (deployment.state !== 'pending') deployment.tools.log.did('failed')
  const failed = failedEnd(deployment, error)
  const known = thrown instanceof UntouchableHostError ? thrown : await recovered(deployment, failed)
  if (deployment.state !== 'pending') await flow.end('failed')
  const isUntouched = known instanceof UntouchableHostError || !pathExistsSync(deployment.layout.root)
  const end = known instanceof UntouchableHostError ? failed : known
  const isNoted = await begun?.noteEnd(end)
  if (isUntouched) {
    // The journal is open, so this touches no path.
    const untouched = await concludeUntouched(deployment, { end, error })
    const { accepted, attempts } = untouched.report.reported
    if (accepted) await begun?.noteReported(attempts)
    begun?.abandon()
    return untouched
  }
  const result = await conclude(deployment, { end, error }, async attempts => await begun?.noteReported(attempts))
  // Without a local report, the next run writes it, if the journal says how this one ended.
  if (result.reportPath === undefined && isNoted) begun?.abandon()
  else await begun?.settle()
  return result
}

/** How a deployment ended, before it is reported. */
export interface Ending {
  readonly end: DeploymentEnd
  readonly error: DeployError | undefined
  /** The checks of the old version for which a cancelled run had no time. */
  readonly unchecked?: readonly RestoredCheck[] | undefined
}

/** `settled` means that nothing is left to recover; `isUnfinished`, that services are left to be restored. */
type SettledEnding = Ending & { readonly settled: boolean; readonly isUnfinished?: boolean | undefined }

interface Running<Fetched extends FetchedFiles = never> {
  readonly deployment: RunningDeployment
  readonly flow: Pick<Flow<never, Fetched>, 'prepare' | 'install' | 'end'>
}

async function runLocked<Fetched extends FetchedFiles>(
  session: HostSession,
  fetched: Fetched,
  { deployment, flow }: Running<Fetched>,
): Promise<EndedDeployment> {
  let ending: SettledEnding
  try {
    const order = await flow.prepare(fetched, session.stagingFolder)
    fetched.close()
    const installation = await flow.install(order, session)
    ending = await commit(deployment, session, installation)
    await flow.end('succeeded')
  } catch (error) {
    ending = await undo(deployment, session, causeOf(deployment, error))
    if (deployment.state !== 'pending') await flow.end(ending.end.outcome === 'rolled_back' ? 'rolled_back' : 'failed')
  }
  const isNoted = await session.noteEnd(ending.end, ending.isUnfinished)
  // The staged tree may be what fills the disk. Nothing needs it any more, and the reports need some room.
  if (isNoted && ending.settled && ending.error?.code === 'disk_full') await session.makeRoom()
  const result = await conclude(deployment, ending, attempts => session.noteReported(attempts))
  const isReported = result.reportPath !== undefined
  // Without a local report, the next run writes it, if the journal says how this one ended.
  if (ending.settled && (isReported || !isNoted)) await session.settle()
  else session.abandon()
  return result
}

/** Commits what the steps have done. Hears a cancel one last time before. */
async function commit(
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

/** The new version is committed: what fails from here on is left to the next run and changes no outcome. */
async function cleanUp(
  { tools }: RunningDeployment,
  session: HostSession,
  installation: Installation,
): Promise<boolean> {
  try {
    return await session.finish(installation)
  } catch (error) {
    const { message } = toDeployError(error)
    tools.log.warning(`The new version is installed. The next run finishes the cleanup, which failed: ${message}`)
    return false
  }
}

async function undo(
  deployment: RunningDeployment,
  { transaction, stagingFolder }: HostSession,
  cause: DeployError,
): Promise<SettledEnding> {
  const { layout, tools, keepPaths } = deployment
  tools.log.did('failed')
  if (transaction.changed || transaction.services.length > 0) tools.log.group('rolling back', 'at once')
  const { outcome, rollback, unchecked, isUnfinished } = await rollBack({
    layout,
    log: tools.log,
    grace: tools.grace,
    places: transaction.places,
    keepPaths,
    stagingFolder,
    byContent: false,
    services: transaction.services,
    healthchecks: transaction.healthchecks,
    undo: () => transaction.rollback(),
  })
  const isRestored = rollback?.restored !== false
  const end = { ...failedEnd(deployment, cause), outcome, rollback, changed: !isRestored }
  return { end, error: cause, settled: isRestored && !isUnfinished, unchecked, isUnfinished }
}

/** One recovery in each run: with the lock, this one has had its own. */
async function recovered(deployment: RunningDeployment, failed: DeploymentEnd) {
  return deployment.isLocked ? judged(deployment, failed) : await recoverBeforeRefusal(deployment.host, failed)
}

/** What a run says that could not recover an earlier one: the journal's records decide whether the host is in doubt. */
function judged({ layout }: RunningDeployment, end: DeploymentEnd): DeploymentEnd {
  return isInDoubt(layout) ? { ...end, outcome: 'inconsistent' } : end
}

/**
 * Why a run fails: the cancel rather than its consequences. Asked before the undo, which a later cancel does not
 * explain.
 */
function causeOf({ tools, layout }: RunningDeployment, thrown: unknown): DeployError {
  if (tools.signal.aborted) return toDeployError(tools.signal.reason)
  return isSystemError(thrown) ? toHostError(thrown, `deploying below ${layout.root}`) : toDeployError(thrown)
}

async function conclude(
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

/** The outputs and the hub state the result; the host does not. */
async function concludeUntouched(
  { host, record, tools }: RunningDeployment,
  { end, error }: Ending,
): Promise<EndedDeployment> {
  const closed = await closeUntouched(host, { record, end }, known => tools.observer.onEnded({ ...known, error }))
  return { ...closed, error }
}
