import type { RunningDeployment } from '../deployment.ts'
import { findUnended } from '../recovery/at-rest.ts'

/**
 * Logs what a real run would do first if another run left its journal or is changing the host. Resolves to whether that
 * is so. Throws as `findUnended` does.
 */
export async function announceRecovery(deployment: RunningDeployment): Promise<boolean> {
  const waiting = await describeUnended(deployment)
  if (waiting === undefined) return false
  deployment.drift.disregard()
  deployment.tools.log.notice(`${waiting} This dry run compares the new files with those that are on the host now.`)
  return true
}

async function describeUnended({ host, tools }: RunningDeployment): Promise<string | undefined> {
  const other = await findUnended(host, tools.signal)
  if (other === undefined) return undefined
  if ('holder' in other)
    return `Another deployment is in progress here (${other.holder}). A real run would wait for that deployment.`
  return 'An interrupted deployment is waiting for its recovery. A real run would recover it first, and deploy nothing if the recovery fails.'
}
