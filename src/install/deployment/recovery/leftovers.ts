import { cleanStaging, discardStaging } from '../../host/cleanup.ts'
import type { Host } from '../../reports/host.ts'
import { removeJournal } from '../../transaction/journal/journal.ts'

/** A deployment that needs no more recovery. */
export interface EndedRun {
  readonly id: string
  /** Whether a kept path could not be put back. The staged files may then contain a copy of it. */
  readonly hasLost?: boolean | undefined
}

/**
 * Removes the journal and the staged files of a deployment. If the staged files may contain a lost kept path, sets the
 * staged files aside instead.
 */
export async function endJournal({ layout, log }: Host, { id, hasLost = false }: EndedRun): Promise<void> {
  if (!hasLost) discardStaging(layout, id)
  await removeJournal(layout.journal)
  await cleanStaging(layout, log)
}

/** Deletes the files that a deployment staged. Its journal, which no longer needs these files, stays. */
export async function emptyStaging({ layout, log }: Host, deploymentId: string): Promise<void> {
  discardStaging(layout, deploymentId)
  await cleanStaging(layout, log)
}
