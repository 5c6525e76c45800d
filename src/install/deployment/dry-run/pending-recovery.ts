import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { describeLiveHolder } from '../../host/locks/lock.ts'
import type { RunningDeployment } from '../deployment.ts'
import { readRecords, verifyRecoverable } from '../recovery/dead-run.ts'

/**
 * Logs what a real run would do first where another one has left its journal, or is at work. Throws DeploymentError
 * `inconsistent` where a real run would be refused for it.
 */
export async function announceRecovery(deployment: RunningDeployment): Promise<void> {
  const first = await whatComesFirst(deployment)
  if (first === undefined) return
  deployment.drift.disregard()
  deployment.tools.log.notice(`${first} This dry run compares with the files as they are now.`)
}

async function whatComesFirst({ host, layout, tools }: RunningDeployment): Promise<string | undefined> {
  if (!pathExistsSync(layout.journal)) return undefined
  const holder = await describeLiveHolder(layout.lock, tools.signal)
  if (holder !== undefined) return `Another deployment is at work here (${holder}). A real run would wait for its end.`
  const records = readRecords(layout)
  if (records.length === 0) return undefined
  verifyRecoverable(host, records)
  return 'An interrupted deployment waits for its recovery. A real run would recover it first, and deploy nothing if that fails.'
}
