import { cleanStaging, discardStaging } from '../../host/cleanup.ts'
import type { Host } from '../../reports/host.ts'
import { removeJournal } from '../../transaction/journal/journal.ts'

/** Nothing is left to recover of a deployment: removes its journal and what it staged. */
export async function endJournal(host: Host, deploymentId: string): Promise<void> {
  const { layout, log } = host
  discardStaging(layout, deploymentId)
  await removeJournal(layout.journal)
  await cleanStaging(layout, log)
}

/** Deletes what a deployment staged while its journal, which needs none of it any more, is still there. */
export async function emptyStaging({ layout, log }: Host, deploymentId: string): Promise<void> {
  discardStaging(layout, deploymentId)
  await cleanStaging(layout, log)
}
