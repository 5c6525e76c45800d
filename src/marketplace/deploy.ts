import { type DeployError, toDeployError } from '../core/errors.ts'
import { type ClosedDeployment, closeDeployment } from '../install/close-deployment.ts'
import type { DeploymentEnd } from '../install/deployment-end.ts'
import { checkHost, prepareHost } from '../install/host.ts'
import { isSystemError, toHostError } from '../install/host-errors.ts'
import {
  type HostSession,
  type OpenDeployment,
  openHostSession,
  recoverBeforeRefusal,
} from '../install/host-session.ts'
import { installPath } from '../install/layout.ts'
import { buildLocalReport, type LocalReport } from '../install/local-report.ts'
import { firstChangeOf, takeBack } from '../install/rollback.ts'
import { type ReadyPlan, readyPlan } from './bind-plan.ts'
import type { DeployRequest, DeployResult, DeployTools } from './deploy-request.ts'
import { dryRun } from './dry-run.ts'
import { installPrepared } from './install-prepared.ts'
import { prepareArtifact } from './prepare-artifact.ts'
import { noteInstalledVersion, readPrevious } from './previous.ts'
import { type Run, startRun } from './run.ts'

/**
 * Deploys one plugin or service by the marketplace contract. However it ends, the host runs exactly the old version or
 * exactly the new one (or the outcome says `inconsistent`), the local report says which, and the hub is told as best it
 * can be (contract 4.3). Never throws for what happens on the way: it is in the result.
 */
export async function deploy(request: DeployRequest, tools: DeployTools): Promise<DeployResult> {
  const run = startRun(request, tools)
  return request.dryRun ? dryRun(run) : deployOnHost(run)
}

async function deployOnHost(run: Run): Promise<DeployResult> {
  let ready: ReadyPlan | undefined
  let session: HostSession | undefined
  try {
    await prepareHost(run.layout, run.tools.log)
    await noteInstalledVersion(run)
    ready = readyPlan(run.request)
    await run.record.update({ id: ready.id })
    session = await openHostSession({
      host: run.host,
      lockTimeoutMs: run.request.lockTimeoutMs,
      runUrl: run.tools.run.url,
      signal: run.tools.signal,
      onLocked: () => run.tools.onLocked(interruptedReport(run)),
    })
    return await deployInSession(run, ready, session)
  } catch (error) {
    const cause = causeOf(run, error)
    const failed = failedEnd(run, cause)
    const end = session === undefined ? await recoverBeforeRefusal(run.host, run.tools.run.url, failed) : failed
    return conclude(run, ready, { end, error: cause })
  } finally {
    await session?.release()
  }
}

interface Ending {
  end: DeploymentEnd
  error: Error | undefined
}

async function deployInSession(run: Run, ready: ReadyPlan, session: HostSession): Promise<DeployResult> {
  const deployment = await session.begin(run.record, run.request.keepPaths)
  const ending = await attempt(run, ready, deployment)
  const isNoted = await deployment.noteEnd(ending.end)
  const result = await conclude(run, ready, ending)
  const isTold = result.reportPath !== undefined
  // Without a local report the next run writes it, if the journal tells how this one ended.
  await (ending.settled && (isTold || !isNoted) ? deployment.settle() : deployment.abandon())
  return result
}

async function attempt(run: Run, ready: ReadyPlan, deployment: OpenDeployment): Promise<Ending & { settled: boolean }> {
  try {
    const previous = await readPrevious(run, ready.id)
    await checkHost(run.layout, run.shelf, ready.id)
    const prepared = await prepareArtifact(run, ready, deployment.stagingFolder, previous)
    const { row, discard } = await installPrepared(run, prepared, previous, deployment)
    run.tools.signal.throwIfAborted()
    await deployment.transaction.commit(row, discard)
    const settled = await finish(run, () => deployment.finish(row, discard))
    await run.enter('succeeded')
    return { end: successEnd(run, deployment.transaction.changed), error: undefined, settled }
  } catch (error) {
    return endFailed(run, ready, deployment, causeOf(run, error))
  }
}

/** The new version is committed: what fails from here on is left to the next run and changes no outcome. */
async function finish(run: Run, clean: () => Promise<boolean>): Promise<boolean> {
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
  run: Run,
  ready: ReadyPlan,
  deployment: OpenDeployment,
  cause: DeployError,
): Promise<Ending & { settled: boolean }> {
  const taken = await takeBack({
    layout: run.layout,
    log: run.tools.log,
    place: { shelf: run.shelf, id: ready.id },
    keepPaths: run.request.keepPaths,
    since: firstChangeOf(run.record),
    previousVersion: run.record.facts.previous_version,
    services: deployment.transaction.services,
    healthchecks: deployment.transaction.healthchecks,
    undo: () => deployment.transaction.rollback(),
  })
  if (run.machine.current !== 'pending') await run.enter(taken.outcome === 'rolled_back' ? 'rolled_back' : 'failed')
  const settled = taken.rollback?.restored !== false
  return { end: { ...failedEnd(run, cause), ...taken, changed: !settled }, error: cause, settled }
}

function successEnd(run: Run, changed: boolean): DeploymentEnd {
  return { outcome: 'success', changed, error: null, rollback: null, completed_at: run.tools.now().toISOString() }
}

/** Nothing of this run is on the host, though an earlier one may have left it neither old nor new. */
function failedEnd(run: Run, { code, message }: DeployError): DeploymentEnd {
  const step = run.record.steps.find(({ status }) => status === 'failed')?.id ?? null
  const outcome = code === 'inconsistent' ? code : 'failed'
  return { ...successEnd(run, false), outcome, error: { code, message, step } }
}

/** Why a run fails: the cancel rather than what it led to; asked before the undo, which a later cancel does not explain. */
function causeOf({ tools, layout }: Run, thrown: unknown): DeployError {
  if (tools.signal.aborted) return toDeployError(tools.signal.reason)
  return isSystemError(thrown) ? toHostError(thrown, `deploying below ${layout.root}`) : toDeployError(thrown)
}

function interruptedReport(run: Run): LocalReport {
  const end = { ...successEnd(run, false), outcome: 'interrupted' as const }
  return buildLocalReport(run.record, end, { accepted: false, attempts: 0, error: null })
}

async function conclude(run: Run, ready: ReadyPlan | undefined, { end, error }: Ending): Promise<DeployResult> {
  const closed: ClosedDeployment = await closeDeployment(run.host, run.record, end, run.host.sender?.address ?? null)
  return {
    ...closed,
    installPath: ready && installPath(run.layout, run.shelf, ready.id),
    error,
    plannedSteps: ready?.steps.map(({ id, action }) => ({ id, action })) ?? [],
  }
}
