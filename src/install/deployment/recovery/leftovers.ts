import { cleanStaging, discardStaging } from '../../host/cleanup.ts'
import type { Host } from '../../reports/host.ts'
import { removeJournal } from '../../transaction/journal/journal.ts'

/** Removes the journal and the staged files of a deployment that needs no more recovery. */
export async function endJournal(host: Host, deploymentId: string): Promise<void> {
  const { layout, log } = host
  discardStaging(layout, deploymentId)
  await removeJournal(layout.journal)
  await cleanStaging(layout, log)
}

/** Removes the journal, and sets the staged files aside, because they may contain files that are missing elsewhere. */
export async function setStagedAside({ layout, log }: Host): Promise<void> {
  await removeJournal(layout.journal)
  await cleanStaging(layout, log)
}

/** Deletes the files that a deployment staged. Its journal, which no longer needs them, stays. */
export async function emptyStaging({ layout, log }: Host, deploymentId: string): Promise<void> {
  discardStaging(layout, deploymentId)
  await cleanStaging(layout, log)
}
