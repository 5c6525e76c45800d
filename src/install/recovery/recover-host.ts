import { setTimeout } from 'node:timers/promises'
import { toDeployError } from '../../core/errors.ts'
import { isSystemError, toHostError } from '../files/errors.ts'
import { pathExistsSync } from '../files/walk.ts'
import { reservePath } from '../host/layout.ts'
import { acquireLock, type HeldLock, type LockRequest } from '../host/lock.ts'
import { requireOwnKinds, requireSafeHost, UntouchableHostError } from '../host/ownership.ts'
import { prepareHost } from '../host/readiness.ts'
import type { DeploymentEnd } from '../journal/facts.ts'
import { readJournal } from '../journal/read.ts'
import type { HostContext } from '../reports/host.ts'
import { describeEnd, findEndedReport } from '../reports/local-report.ts'
import type { RunResult } from '../reports/result.ts'
import { findEnd, isInDoubt } from './dead-run.ts'
import { recoverDeadRun } from './recover.ts'
import { findPending } from './services.ts'

/** A longer wait is not needed: a live holder has already recovered the host. */
const POST_LOCK_TIMEOUT_MS = 5000
const REPEAT_AFTER_MS = 100

/** What is known in a post step about its main step. */
export interface MainStep {
  readonly lockTimeoutMs: number | undefined
  /** False if the main step was killed. */
  readonly hasEnded: boolean
}

/**
 * For the post step: recovers and reports what its main step left, as `recoverHost` does. That may be the journal of an
 * earlier run, whose recovery the main step could not complete. After a main step that was killed, returns how that
 * step ended if its report is found, even if another run recovered it. Otherwise, returns what was recovered, if
 * anything. After a main step that ended by itself, only warns about a failure if the host has exactly one version.
 */
export async function recoverMainStep(host: HostContext, main: MainStep): Promise<RunResult | undefined> {
  const timeoutMs = Math.min(main.lockTimeoutMs ?? POST_LOCK_TIMEOUT_MS, POST_LOCK_TIMEOUT_MS)
  const recover = main.hasEnded ? completeStep : recoverKilledStep
  return await withSecondAttempt(() => recover(host, timeoutMs))
}

/**
 * Repeats a recovery once if the system has reported an error: it may lack memory or descriptors for a moment. A
 * recovery may be repeated, whatever it has done.
 */
async function withSecondAttempt<Recovered>(recover: () => Promise<Recovered>): Promise<Recovered> {
  try {
    return await recover()
  } catch (error) {
    if (!isOfSystem(error)) throw error
    await setTimeout(REPEAT_AFTER_MS)
    return await recover()
  }
}

function isOfSystem(error: unknown): boolean {
  return isSystemError(error) || (error instanceof Error && error.cause !== undefined && isOfSystem(error.cause))
}

async function recoverKilledStep(host: HostContext, timeoutMs: number): Promise<RunResult | undefined> {
  try {
    const recovered = await recoverOnce(host, timeoutMs)
    return recovered?.report.deployment_id === host.run.id ? recovered : (endedByAnother(host) ?? recovered)
  } catch (error) {
    const { code, message } = toDeployError(error)
    if (code !== 'locked' || !readJournalState(host).startsWith('of another')) throw error
    const ended = endedByAnother(host)
    if (ended !== undefined) return ended
    host.log.info(`The deployment ${host.run.id} has left nothing to recover, and no report. ${message}`)
    return undefined
  }
}

async function completeStep(host: HostContext, timeoutMs: number): Promise<RunResult | undefined> {
  const { layout, log } = host
  if (!pathExistsSync(layout.journal)) return undefined
  requireSafeHost(host)
  const state = readJournalState(host)
  // The main step has already tried to recover such a host, and said why it could not.
  if (state === 'damaged' || state === 'of another, not restored') return undefined
  try {
    const recovered = await recoverOnce(host, state === 'own' ? timeoutMs : 0)
    // The main step has already shown its success.
    return recovered?.report.outcome === 'success' ? undefined : recovered
  } catch (error) {
    if (state !== 'own' && toDeployError(error).code === 'locked') return undefined
    if (isInDoubt(layout)) throw error
    log.warning(`The cleanup is not complete; later runs continue it: ${toHostError(error, 'cleaning up').message}`)
    return undefined
  }
}

function endedByAnother({ layout, log, run }: HostContext): RunResult | undefined {
  const found = findEndedReport(layout, run.id)
  if (found === undefined) return undefined
  log.notice(`Nothing of this deployment is left to recover: ${describeEnd(found.report)}.`)
  return { report: found.report, reportPath: found.path, plannedSteps: [] }
}

/** Whose journal is on the host. `not restored`: a recovery has failed. A missing journal counts as another run's. */
function readJournalState({ layout, run }: HostContext): 'own' | 'of another' | 'of another, not restored' | 'damaged' {
  try {
    const records = readJournal(layout.journal) ?? []
    const [begin] = records
    if (begin?.record === 'begin' && begin.facts.deployment_id === run.id) return 'own'
    return findEnd(records)?.rollback?.restored === false ? 'of another, not restored' : 'of another'
  } catch {
    return 'damaged'
  }
}

/** True if this run has a host config, and an earlier run has left a service to restart and check. */
export function isAnyPending({ layout, hostConfig }: HostContext): boolean {
  return hostConfig !== undefined && findPending(layout).length > 0
}

/**
 * If there is a journal or a pending service, waits for the lock and recovers what a dead run left. Returns undefined
 * if there is nothing to recover. Throws as `requireSafeHost`, `requireOwnKinds`, `holdLock` and `recoverDeadRun` do.
 */
export async function recoverHost(host: HostContext, lockTimeoutMs: number): Promise<RunResult | undefined> {
  return await withSecondAttempt(() => recoverOnce(host, lockTimeoutMs))
}

async function recoverOnce(host: HostContext, lockTimeoutMs: number): Promise<RunResult | undefined> {
  requireSafeHost(host)
  if (!pathExistsSync(host.layout.journal) && !isAnyPending(host)) return undefined
  requireOwnKinds(host.layout)
  const lock = await holdLock(host, lockTimeoutMs)
  try {
    return await recoverDeadRun(host)
  } finally {
    lock.release()
  }
}

/** Takes the lock. If the disk is full, the lock takes the space that is reserved for a recovery. */
export async function holdLock(
  { layout, run, log }: HostContext,
  timeoutMs: number,
  more: Partial<Pick<LockRequest, 'signal' | 'log' | 'deployment'>> = {},
): Promise<HeldLock> {
  const say = (line: string): void => log.info(line)
  const paths = { path: layout.lock, reserve: reservePath(layout) }
  return await acquireLock({ ...paths, timeoutMs, runUrl: run.url, log: say, onLeft: say, ...more })
}

/**
 * Recovers what a dead run left, before another run is refused for its own reasons. If there is a project root, also
 * prepares it for the report of the refused run, as far as that is possible. Returns `end`. Its outcome becomes
 * `inconsistent` if the recovery fails and, according to the journal, the host may have neither version intact. Does
 * not wait for the lock: a live holder recovers the host itself. Returns the UntouchableHostError if the host must not
 * be touched.
 */
export async function recoverBeforeRefusal(
  host: HostContext,
  end: DeploymentEnd,
): Promise<DeploymentEnd | UntouchableHostError> {
  try {
    await prepareForReport(host)
    await recoverHost(host, 0)
    return end
  } catch (error) {
    if (error instanceof UntouchableHostError) return error
    const { code, message } = toDeployError(error)
    if (code === 'locked' || !isInDoubt(host.layout) || end.error === null) return end
    const known = end.error.message
    const both = known === message ? known : `${known} Also: ${message}`
    return { ...end, outcome: 'inconsistent', error: { ...end.error, message: both } }
  }
}

/** Only refuses an unsafe host. Any other failure explains itself when the report cannot be written. */
async function prepareForReport(host: HostContext): Promise<void> {
  if (!pathExistsSync(host.layout.root) || pathExistsSync(host.layout.own)) return
  try {
    await prepareHost(host, host.log)
  } catch (error) {
    if (error instanceof UntouchableHostError) throw error
  }
}
