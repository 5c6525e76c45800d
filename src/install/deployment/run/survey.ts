import { readdirSync } from 'node:fs'
import { toDeployError } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { begunDeployment, type Layout } from '../../host/layout.ts'
import { describeOther } from '../../host/locks/lock.ts'
import type { RunningDeployment } from '../deployment.ts'
import type { HostLock } from './host-lock.ts'

/**
 * Examines the host before anything is fetched, so that a deployment is refused as early as possible. Examines a quiet
 * host without its lock. If the host is not quiet, or if `check` refuses it with a code other than `inconsistent`,
 * tries to take the lock without waiting. With the lock, recovers a dead run, sends the outbox and examines the host
 * again. If another run has the lock, all of this happens after the download. The survey can only refuse a deployment:
 * whatever passes is judged again once the host is locked for the installation. Throws as `check` does and, except for
 * `locked`, as `HostLock.take` does. Also throws file system errors. In all these cases, the lock may be held.
 */
export async function surveyHost(
  deployment: RunningDeployment,
  lock: HostLock,
  check: () => Promise<void>,
): Promise<void> {
  if (await passesUnlocked(deployment, check)) return
  if (!(await isFree(deployment, lock))) return
  await check()
  lock.release()
}

/**
 * Refuses only a host whose state is already uncertain: without the lock, another run may be moving what is examined.
 */
async function passesUnlocked(deployment: RunningDeployment, check: () => Promise<void>): Promise<boolean> {
  if (!isQuiet(deployment.host.layout)) return false
  deployment.noteRunning()
  try {
    await check()
    // Another run that has begun in the meantime may have moved what was examined.
    return isQuiet(deployment.host.layout)
  } catch (error) {
    if (toDeployError(error).code === 'inconsistent') throw error
    return false
  }
}

/** True if no run is in progress, and none has left anything to recover or to send. */
function isQuiet({ own, lock, journal, outbox }: Layout): boolean {
  if (pathExistsSync(lock) || pathExistsSync(journal)) return false
  const isWaiting = readdirSync(own).some(name => begunDeployment(name) !== undefined)
  return !isWaiting && readdirSync(outbox).length === 0
}

/** Takes the lock unless another run has it. */
async function isFree(deployment: RunningDeployment, lock: HostLock): Promise<boolean> {
  const { host, tools } = deployment
  try {
    await lock.take(0)
    return true
  } catch (error) {
    if (deployment.isLocked || toDeployError(error).code !== 'locked') throw error
    // The other run may have just released the lock.
    if (pathExistsSync(host.layout.lock))
      tools.log.info(
        `Another deployment is in progress here: ${describeOther(host.layout.lock)}. This run does not wait for it yet.`,
      )
    return false
  }
}
