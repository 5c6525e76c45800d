import { statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { waitUntil } from './wait-until.ts'

/**
 * Resolves once the clock of a folder's file system has moved on, so that a later change gets a later time. Leaves the
 * file `probe` in the folder.
 */
export async function timesMoveOn(folder: string): Promise<void> {
  const probe = join(folder, 'probe')
  const changedAt = (): bigint => {
    writeFileSync(probe, '')
    return statSync(probe, { bigint: true }).ctimeNs
  }
  const last = changedAt()
  await waitUntil('the times of files have moved on', () => changedAt() > last)
}
