import { type DeployError, toDeployError } from '../../core/errors.ts'
import { isSystemError, toHostError } from '../files/system-errors.ts'
import { hearSignals } from '../files/time-slice.ts'
import { cleanStaging } from '../host/cleanup.ts'
import type { Installation } from '../host/installed.ts'
import { prepareHost } from '../host/readiness.ts'
import { type ClosedDeployment, closeDeployment } from '../reports/close.ts'
import { buildLocalReport, type LocalReport } from '../reports/local-report.ts'
import type { DeploymentEnd } from '../transaction/end.ts'
import { firstChangeOf, takeBack } from '../transaction/rollback.ts'
import type { DeploymentRun } from './deployment.ts'
import { type HostSession, type OpenDeployment, openHostSession, recoverBeforeRefusal } from './session.ts'

/** What a contract's flow puts into the frame that every deployment has. */
export interface Flow {
  /** Whatever can be refused before the host is locked. */
  prepare(): Promise<void>
  /** Everything up to the commit; what it changes goes through the deployment's transaction. */
  install(deployment: OpenDeployment): Promise<Installation>
}

export interface EndedDeployment extends ClosedDeployment {
  /** What failed, as it was thrown. */
  error: DeployError | undefined
}

/**
 * Runs a deployment on its host: lock, recovery of what a dead run left, the flow, commit or rollback, reports. However it
 * ends, the host runs exactly the old version or exactly the new one, or the outcome says `inconsistent`. Never throws
 * for what happens on the way: it is in the result.
 */
export async function runDeployment(run: DeploymentRun, flow: Flow): Promise<EndedDeployment> {
  let session: HostSession | undefined
  try {
    await prepareHost(run.layout, run.tools.log)
    await flow.prepare()
    session = await openHostSession({
      host: run.host,
      lockTimeoutMs: run.request.lockTimeoutMs,
      runUrl: run.tools.run.url,
      signal: run.tools.signal,
      onLocked: () => run.tools.onLocked(interruptedReport(run)),
    })
    return await runInSession(run, flow, session)
  } catch (error) {
    const cause = causeOf(run, error)
    const failed = failedEnd(run, cause)
    const end = session === undefined ? await recoverBeforeRefusal(run.host, run.tools.run.url, failed) : failed
    return conclude(run, { end, error: cause })
  } finally {
    session?.release()
  }
}

interface Ending {
  end: DeploymentEnd
  error: DeployError | undefined
}

async function runInSession(run: DeploymentRun, flow: Flow, session: HostSession): Promise<EndedDeployment> {
  const deployment = await session.begin(run.record, run.request.keepPaths)
  const ending = await attempt(run, flow, deployment)
  const isNoted = await deployment.noteEnd(ending.end)
  const result = await conclude(run, ending)
  const isTold = result.reportPath !== undefined
  // Without a local report the next run writes it, if the journal tells how this one ended.
  if (ending.settled && (isTold || !isNoted)) await deployment.settle()
  else deployment.abandon()
  return result
}

async function attempt(
  run: DeploymentRun,
  flow: Flow,
  deployment: OpenDeployment,
): Promise<Ending & { settled: boolean }> {
  try {
    const installation = await flow.install(deployment)
    await hearSignals()
    run.tools.signal.throwIfAborted()
    await deployment.transaction.commit(installation)
    const settled = await finish(run, () => deployment.finish(installation))
    await run.enter('succeeded')
    return { end: successEnd(run, deployment.transaction.changed), error: undefined, settled }
  } catch (error) {
    return endFailed(run, deployment, causeOf(run, error))
  }
}

/** The new version is committed: what fails from here on is left to the next run and changes no outcome. */
async function finish(run: DeploymentRun, clean: () => Promise<boolean>): Promise<boolean> {
  try {
    return await clean()
  } catch (error) {
    run.tools.log.warning(
      `The new version is in place, but the cleanup is left to the next run: ${toDeployError(error).message}`,
    )
    return false
  }
}

async function endFailed(
  run: DeploymentRun,
  { transaction }: OpenDeployment,
  cause: DeployError,
): Promise<Ending & { settled: boolean }> {
  const taken = await takeBack({
    layout: run.layout,
    log: run.tools.log,
    places: transaction.places,
    keepPaths: run.request.keepPaths,
    since: firstChangeOf(run.record),
    services: transaction.services,
    healthchecks: transaction.healthchecks,
    undo: () => transaction.rollback(),
  })
  const settled = taken.rollback?.restored !== false
  if (settled && cause.code === 'disk_full') await makeRoom(run)
  if (run.machine.current !== 'pending') await run.enter(taken.outcome === 'rolled_back' ? 'rolled_back' : 'failed')
  return { end: { ...failedEnd(run, cause), ...taken, changed: !settled }, error: cause, settled }
}

/** What filled the disk may be the staged tree, which nothing needs any more; how the run ended needs some room to be told. */
async function makeRoom({ layout, tools }: DeploymentRun): Promise<void> {
  await cleanStaging(layout, tools.log).catch(error =>
    tools.log.warning(`The staging folder could not be emptied: ${toDeployError(error).message}`),
  )
}

function successEnd(run: DeploymentRun, changed: boolean): DeploymentEnd {
  return { outcome: 'success', changed, error: null, rollback: null, completed_at: run.tools.now().toISOString() }
}

/** Nothing of this run is on the host, though an earlier one may have left it neither old nor new. */
function failedEnd(run: DeploymentRun, { code, message }: DeployError): DeploymentEnd {
  const step = run.record.steps.find(({ status }) => status === 'failed')?.id ?? null
  const outcome = code === 'inconsistent' ? code : 'failed'
  return { ...successEnd(run, false), outcome, error: { code, message, step } }
}

/** Why a run fails: the cancel rather than what it led to; asked before the undo, which a later cancel does not explain. */
function causeOf({ tools, layout }: DeploymentRun, thrown: unknown): DeployError {
  if (tools.signal.aborted) return toDeployError(tools.signal.reason)
  return isSystemError(thrown) ? toHostError(thrown, `deploying below ${layout.root}`) : toDeployError(thrown)
}

function interruptedReport(run: DeploymentRun): LocalReport {
  const end = { ...successEnd(run, false), outcome: 'interrupted' as const }
  return buildLocalReport(run.record, end, { accepted: false, attempts: 0, error: null })
}

async function conclude(run: DeploymentRun, { end, error }: Ending): Promise<EndedDeployment> {
  const address = run.host.sender?.address ?? null
  const { signal, onCancelledEnd } = run.tools
  const untilTold = new AbortController()
  const closed = await closeDeployment(run.host, run.record, end, address, known => {
    if (signal.aborted) onCancelledEnd(known)
    signal.addEventListener('abort', () => onCancelledEnd(known), { signal: untilTold.signal })
  })
  untilTold.abort()
  return { ...closed, error }
}
