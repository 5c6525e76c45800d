import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { requireSafeHost } from '../../host/ownership/ownership.ts'
import { prepareHost } from '../../host/readiness.ts'
import type { EndedDeployment, RunningDeployment } from '../deployment.ts'
import { type BegunDeployment, beginDeployment } from './begun.ts'
import { conclude } from './conclude.ts'
import { endUnchanged } from './end-unchanged.ts'
import { causeOf, commit, type SettledEnding, undo } from './ending.ts'
import type { FetchedFiles, Flow } from './flow.ts'
import { HostLock } from './host-lock.ts'
import { type HostSession, openSession } from './session.ts'
import { surveyHost } from './survey.ts'

/**
 * Runs a deployment on its host. After the survey and the fetch, takes the lock, recovers what a dead run left, runs
 * the rest of the contract's flow, commits or rolls back, and reports. In this order, no run waits for another run's
 * download. However the deployment ends, the host runs exactly the old version or exactly the new one, or the outcome
 * says `inconsistent`. Never throws for a failure of the run: the result contains the error.
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
    return noteLeft(deployment, await endUnchanged(error, { deployment, flow, begun }))
  } finally {
    fetched?.close()
    lock.release()
  }
}

/** Notes whether a cancelled run that has the lock leaves a journal to its post step. */
function noteLeft({ tools, layout, isLocked }: RunningDeployment, ended: EndedDeployment): EndedDeployment {
  const mayLeave = isLocked && tools.signal.aborted && ended.report.outcome !== 'inconsistent'
  return { ...ended, isUnfinished: mayLeave && pathExistsSync(layout.journal) }
}

/**
 * Prepares the host and checks the operator's files. If these files are refused, creates no project root.
 */
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

/** A run that has locked its host. */
interface Running<Fetched extends FetchedFiles> {
  readonly deployment: RunningDeployment
  readonly flow: Pick<Flow<never, Fetched>, 'prepare' | 'install' | 'end'>
}

/** Prepares, installs and commits, or rolls back; then reports. */
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
  // The staged tree may have filled the disk. Nothing needs that tree anymore, and the reports need space.
  if (isNoted && ending.settled && ending.error?.code === 'disk_full') await session.makeRoom()
  const result = await conclude(deployment, ending, attempts => session.noteReported(attempts))
  const isReported = result.reportPath !== undefined
  // If there is no local report, the next run writes it, provided that the journal says how this run ended.
  if (ending.settled && (isReported || !isNoted)) await session.settle()
  else session.abandon()
  return result
}
