import { statfsSync } from 'node:fs'
import { byteShortage } from '../../core/byte-shortage.ts'
import { DeploymentError } from '../../core/errors.ts'

/** Enough for our own records; the artifact's own need is checked when its listing is known. */
const MIN_FREE_INODES = 16

/** Throws DeploymentError `disk_full` unless `neededBytes` are free at the path. */
export function requireSpace(path: string, neededBytes: number): void {
  const { bavail, bsize, files, ffree } = statfsSync(path)
  const free = bavail * bsize
  // A file system that creates inodes on demand reports none.
  if (files > 0 && ffree < MIN_FREE_INODES) throw outOfInodes(path, ffree)
  if (free >= neededBytes) return
  const shortage = byteShortage(free, neededBytes)
  throw new DeploymentError(
    'disk_full',
    `${path} has ${shortage.free} free, but this deployment needs ${shortage.needed}. Nothing was changed: free some space and run again.`,
  )
}

function outOfInodes(path: string, free: number): DeploymentError {
  return new DeploymentError(
    'disk_full',
    `The file system of ${path} has ${free} inodes left, but this deployment needs at least ${MIN_FREE_INODES}. Nothing was changed: remove some files and run again.`,
  )
}
