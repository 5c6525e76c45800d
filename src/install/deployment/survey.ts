import { toDeployError } from '../../core/errors.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { describeOther } from '../host/locks/lock.ts'
import type { RunningDeployment } from './deployment.ts'
import type { HostLock } from './host-lock.ts'

/**
 * A look at the host before anything is fetched, with its lock, for which it does not wait: a dead run is recovered, the
 * outbox is sent, and what can be refused is refused now. Where another run has the host, all of that comes after the
 * download. It only ever refuses: whatever passes is judged again once the host is locked for the installation. Throws
 * what `check` throws, and what `HostLock.take` throws except `locked`; then the lock is still held.
 */
export async function surveyHost(
  deployment: RunningDeployment,
  lock: HostLock,
  check: () => Promise<void>,
): Promise<void> {
  // Even a look needs the lock: another run may be moving what is looked at, and some checks ask by a rename.
  if (!(await isFree(deployment, lock))) return
  await check()
  lock.release()
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
