import { statfsSync } from 'node:fs'
import { byteShortage } from '../../core/byte-shortage.ts'
import { DeploymentError } from '../../core/errors.ts'
import type { DeploymentTools } from './deployment.ts'

const PROGRESS_EVERY_MS = 2000

/**
 * Tells how far a download is, at most once in 2 s. Throws DeploymentError `disk_full` at the first bytes, when nothing has
 * been written yet, where the temporary folder cannot hold all of it.
 */
export function watchDownload({
  log,
  now,
  temporaryFolder,
}: Pick<DeploymentTools, 'log' | 'now' | 'temporaryFolder'>): (received: number, total: number | undefined) => void {
  let toldAt = now().getTime()
  let isChecked = false
  return (received, total) => {
    if (!isChecked && total !== undefined) refuseWithoutSpace(temporaryFolder, total)
    isChecked = true
    if (now().getTime() - toldAt < PROGRESS_EVERY_MS) return
    toldAt = now().getTime()
    log.info(`${received} of ${total ?? 'an unknown number of'} bytes.`)
  }
}

function refuseWithoutSpace(folder: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(folder)
  const free = bavail * bsize
  if (free >= bytes) return
  const told = byteShortage(free, bytes)
  throw new DeploymentError(
    'disk_full',
    `The artifact has ${told.needed}, the runner's temporary folder ${folder} has ${told.free} free: free some space and run again. Nothing was changed.`,
  )
}
