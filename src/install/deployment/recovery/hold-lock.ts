import { toDeployError } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { acquireLock, type HeldLock, type LockRequest } from '../../host/locks/lock.ts'
import { spendReserve } from '../../host/reserve.ts'
import type { Host } from '../../reports/host.ts'

/**
 * Takes the lock. If the disk is full and there is an interrupted deployment, spends the reserve that is kept for its
 * recovery. Throws as `acquireLock` does.
 */
export async function holdLock(
  { layout, run, log }: Host,
  timeoutMs: number,
  more: Partial<Pick<LockRequest, 'signal' | 'log' | 'deployment'>> = {},
): Promise<HeldLock> {
  const say = (line: string): void => log.info(line)
  const acquire = async () => await acquireLock({ path: layout.lock, timeoutMs, runUrl: run.url, log: say, ...more })
  try {
    return await acquire()
  } catch (error) {
    const isWorthIt = toDeployError(error).code === 'disk_full' && pathExistsSync(layout.journal)
    if (!isWorthIt || !spendReserve(layout)) throw error
    return await acquire()
  }
}
