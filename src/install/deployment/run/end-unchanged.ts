import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { UntouchableHostError } from '../../host/ownership/untouchable-host.ts'
import type { DeploymentEnd } from '../../transaction/end.ts'
import type { EndedDeployment, RunningDeployment } from '../deployment.ts'
import { failedEnd } from '../failed-end.ts'
import { isInDoubt } from '../recovery/dead-run.ts'
import { recoverBeforeRefusal } from '../recovery/recover-host.ts'
import type { BegunDeployment } from './begun.ts'
import { conclude, concludeUntouched } from './conclude.ts'
import { causeOf } from './ending.ts'
import type { Flow } from './flow.ts'

/** A run that could not open the host for its changes. */
interface Unopened {
  readonly deployment: RunningDeployment
  readonly flow: Pick<Flow<never, never>, 'end'>
  /** Undefined if the deployment had not begun. */
  readonly begun: BegunDeployment | undefined
}

/** Ends and reports a run that has changed nothing. */
export async function endUnchanged(thrown: unknown, unopened: Unopened): Promise<EndedDeployment> {
  const { deployment, flow, begun } = unopened
  const error = causeOf(deployment, thrown)
  if (deployment.state !== 'pending') deployment.tools.log.did('failed')
  const failed = failedEnd(deployment, error)
  const known = thrown instanceof UntouchableHostError ? thrown : await recovered(deployment, failed)
  if (deployment.state !== 'pending') await flow.end('failed')
  const isUntouched = known instanceof UntouchableHostError || !pathExistsSync(deployment.layout.root)
  const end = known instanceof UntouchableHostError ? failed : known
  const isNoted = await begun?.noteEnd(end)
  if (isUntouched) {
    // The journal is already open, so writing a record to it opens no path.
    const untouched = await concludeUntouched(deployment, { end, error })
    const { accepted, attempts } = untouched.report.reported
    if (accepted) await begun?.noteReported(attempts)
    begun?.abandon()
    return untouched
  }
  const result = await conclude(deployment, { end, error }, async attempts => await begun?.noteReported(attempts))
  // If there is no local report, the next run writes it, provided that the journal says how this run ended.
  if (result.reportPath === undefined && isNoted) begun?.abandon()
  else await begun?.settle()
  return result
}

/** Recovers the host at most once in each run: a run that has the lock has already recovered the host, or failed to. */
async function recovered(deployment: RunningDeployment, failed: DeploymentEnd) {
  return deployment.isLocked ? judged(deployment, failed) : await recoverBeforeRefusal(deployment.host, failed)
}

/**
 * Returns the end of a run that failed once it had the lock. The journal's records determine whether the state of the
 * host is uncertain. If so, the outcome is `inconsistent`.
 */
function judged({ layout }: RunningDeployment, end: DeploymentEnd): DeploymentEnd {
  return isInDoubt(layout) ? { ...end, outcome: 'inconsistent' } : end
}
