import { readdirSync } from 'node:fs'
import { toDeployError } from '../../core/errors.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { describeOther } from '../host/locks/lock.ts'
import { findDeadBegun } from './dead-begun.ts'
import type { RunningDeployment } from './deployment.ts'
import type { HostLock } from './host-lock.ts'

/**
 * A look at the host before anything is fetched, which waits for nobody: a dead run is recovered, the outbox is sent, and
 * what can be refused is refused now. Where another run has the host, all of that comes after the download. It only ever
 * refuses: whatever passes is judged again once the host is locked. Throws what `check` throws while no other run has
 * the host, and what `HostLock.take` throws except `locked`; then the lock is still held.
 */
export async function surveyHost(
  deployment: RunningDeployment,
  lock: HostLock,
  check: () => Promise<void>,
): Promise<void> {
  const { signal } = deployment.tools
  // What is refused or cannot be read without the lock may be what another run is changing.
  if (isQuiet(deployment) && (await passes(check, signal))) return
  if (!(await isFree(deployment, lock))) return
  await check()
  lock.release()
}

/** Whether no run has the host, no dead run must be recovered or reported, and no report waits for the hub. */
function isQuiet({ host }: RunningDeployment): boolean {
  const { lock, journal, outbox } = host.layout
  const isWaiting = host.sender !== undefined && readdirSync(outbox).length > 0
  return !isWaiting && !pathExistsSync(lock) && !pathExistsSync(journal) && findDeadBegun(host).length === 0
}

async function passes(check: () => Promise<void>, signal: AbortSignal): Promise<boolean> {
  try {
    await check()
    return true
  } catch {
    signal.throwIfAborted()
    return false
  }
}

/** Takes the lock, if no other run has it. */
async function isFree({ host, tools }: RunningDeployment, lock: HostLock): Promise<boolean> {
  try {
    await lock.take(0)
    return true
  } catch (error) {
    if (lock.isHeld || toDeployError(error).code !== 'locked') throw error
    // It may have released it just now.
    if (pathExistsSync(host.layout.lock))
      tools.log.info(
        `Another deployment is at work here: ${describeOther(host.layout.lock)}. This one does not wait yet.`,
      )
    return false
  }
}
