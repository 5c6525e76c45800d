import { toDeployError } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { begunPath } from '../../host/layout.ts'
import { requireOwnKinds } from '../../host/ownership/own-kinds.ts'
import { requireSafeHost } from '../../host/ownership/ownership.ts'
import { UntouchableHostError } from '../../host/ownership/untouchable-host.ts'
import { requireNothingStranded, strandedNames } from '../../host/switchable.ts'
import type { ClosedDeployment } from '../../reports/close.ts'
import { findEndedReport } from '../../reports/ended-report.ts'
import type { Host } from '../../reports/host.ts'
import { describeEnd } from '../../reports/recovered-run.ts'
import type { DeploymentEnd } from '../../transaction/end.ts'
import { readJournal } from '../../transaction/journal/read-journal.ts'
import { findDeadBegun } from './dead-begun.ts'
import { isInDoubt } from './dead-run.ts'
import { holdLock } from './hold-lock.ts'
import { findPending } from './recovered-services.ts'
import { recover } from './recovery.ts'

const RECOVERY_LOCK_TIMEOUT_MS = 5000

/**
 * For the post step: recovers and reports what its main step left, as `recoverHost` does. If the main step's report is
 * found, returns how the main step ended, even if another run recovered it. Otherwise, returns what was recovered, if
 * anything. Returns undefined if another run has the lock, the main step left no report, and `journal.jsonl` is not the
 * main step's. In that case, if the main step left a journal from before it had the lock, a later run reports that
 * step.
 */
export async function recoverMainStep(host: Host, lockTimeoutMs?: number): Promise<ClosedDeployment | undefined> {
  try {
    const recovered = await recoverHost(host, lockTimeoutMs)
    return recovered?.report.deployment_id === host.run.id ? recovered : (endedByAnother(host) ?? recovered)
  } catch (error) {
    const { code, message } = toDeployError(error)
    if (code !== 'locked' || isOwnJournal(host)) throw error
    const ended = endedByAnother(host)
    if (ended !== undefined) return ended
    const isWaiting = pathExistsSync(begunPath(host.layout, host.run.id))
    const fate = isWaiting ? 'changed nothing; a later run reports it' : 'left nothing to recover, and no report'
    host.log.info(`The deployment ${host.run.id} has ${fate}. ${message}`)
    return undefined
  }
}

function endedByAnother({ layout, log, run }: Host): ClosedDeployment | undefined {
  const found = findEndedReport(layout, run.id)
  if (found === undefined) return undefined
  log.notice(`Nothing of this deployment is left to recover: ${describeEnd(found.report)}.`)
  return { report: found.report, reportPath: found.path, plannedSteps: [] }
}

/** True if `journal.jsonl` belongs, or may belong, to this run's main step. */
function isOwnJournal({ layout, run }: Host): boolean {
  try {
    const [begin] = readJournal(layout.journal) ?? []
    return begin?.record === 'begin' && begin.facts.deployment_id === run.id
  } catch {
    return true
  }
}

/**
 * Recovers and reports what dead runs left, as `recover` does. Waits for the lock for at most 5 s, or for
 * `lockTimeoutMs` if that is shorter. A longer wait is not needed: a live holder has already recovered the host. Throws
 * as `requireSafeHost` does; if there is anything to recover, also as `requireOwnKinds`, `holdLock` and `recover` do.
 */
export async function recoverHost(
  host: Host,
  lockTimeoutMs = RECOVERY_LOCK_TIMEOUT_MS,
): Promise<ClosedDeployment | undefined> {
  requireSafeHost(host)
  const { journal, own } = host.layout
  const isAnyLeft = pathExistsSync(journal) || (pathExistsSync(own) && (await findDeadBegun(host)).length > 0)
  return isAnyLeft ? await recoverLocked(host, Math.min(lockTimeoutMs, RECOVERY_LOCK_TIMEOUT_MS)) : undefined
}

/**
 * If there is a journal or a pending service, waits for the lock and recovers what dead runs left. Returns undefined if there is nothing to
 * recover. Throws as `requireSafeHost`, `requireOwnKinds`, `holdLock`, `recover` and, without a journal,
 * `requireNothingStranded` do.
 */
export async function recoverWhenFree(host: Host, lockTimeoutMs: number): Promise<ClosedDeployment | undefined> {
  requireSafeHost(host)
  const isDue = pathExistsSync(host.layout.journal) || isAnyPending(host)
  if (isDue) return await recoverLocked(host, lockTimeoutMs)
  requireNothingStranded(host.layout)
  return undefined
}

/** True if this run has a host config, and an earlier run has left a service to restart and check. */
export function isAnyPending({ layout, hostConfig }: Host): boolean {
  return hostConfig !== undefined && findPending(layout).length > 0
}

async function recoverLocked(host: Host, lockTimeoutMs: number): Promise<ClosedDeployment | undefined> {
  requireOwnKinds(host.layout)
  const lock = await holdLock(host, lockTimeoutMs)
  try {
    return await recover(host)
  } finally {
    await lock.release()
  }
}

/**
 * Recovers what a dead run left, before another run is refused for its own reasons. Returns `end`. Its outcome becomes
 * `inconsistent` if the recovery fails and, according to the journal, the host may have neither version intact. It also
 * becomes `inconsistent` if a rename that should have failed has stranded a tree. Does not wait for the lock: a live
 * holder recovers the host itself, and a run that is refused as `locked` has waited long enough. Returns the
 * UntouchableHostError if the host must not be touched.
 */
export async function recoverBeforeRefusal(
  host: Host,
  end: DeploymentEnd,
): Promise<DeploymentEnd | UntouchableHostError> {
  try {
    await recoverHost(host, 0)
    requireNothingStranded(host.layout)
    return end
  } catch (error) {
    if (error instanceof UntouchableHostError) return error
    const { code, message } = toDeployError(error)
    const isUncertain = isInDoubt(host.layout) || strandedNames(host.layout).length > 0
    if (code === 'locked' || !isUncertain || end.error === null) return end
    const known = end.error.message
    const both = known === message ? known : `${known} Also: ${message}`
    return { ...end, outcome: 'inconsistent', error: { ...end.error, message: both } }
  }
}
