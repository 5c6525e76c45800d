import { statfsSync } from 'node:fs'
import { byteShortage } from '../../core/byte-shortage.ts'
import { DeploymentError } from '../../core/errors.ts'
import { bytesInWords } from '../../core/quantities.ts'
import type { Tools } from '../transaction/context.ts'

const PROGRESS_EVERY_MS = 2000

/**
 * Returns a function that logs the progress of a download, at most once every 2 s. The first call to that function
 * throws DeploymentError `disk_full` if the total is known and the temporary folder has no room for that many bytes.
 */
export function watchDownload({
  log,
  now,
  runner,
}: Pick<Tools, 'log' | 'now' | 'runner'>): (received: number, total: number | undefined) => void {
  let loggedAt = now().getTime()
  let isChecked = false
  return (received, total) => {
    if (!isChecked && total !== undefined) refuseWithoutSpace(runner.temporaryFolder, total)
    isChecked = true
    if (now().getTime() - loggedAt < PROGRESS_EVERY_MS) return
    loggedAt = now().getTime()
    log.info(`${bytesInWords(received)} of ${total === undefined ? 'an unknown total' : bytesInWords(total)}`)
  }
}

function refuseWithoutSpace(folder: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(folder)
  const free = bavail * bsize
  if (free >= bytes) return
  const shortage = byteShortage(free, bytes)
  throw new DeploymentError(
    'disk_full',
    `The artifact needs ${shortage.needed}, but the runner's temporary folder ${folder} has ${shortage.free} free. Nothing was changed: free some space there and run again.`,
  )
}
