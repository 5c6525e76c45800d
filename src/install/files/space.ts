import { statfsSync } from 'node:fs'
import { byteShortage } from '../../core/byte-shortage.ts'
import { DeploymentError } from '../../core/errors.ts'

/** Room for our own records; the artifact's own need is checked when its listing is known. */
const MIN_FREE_INODES = 16

/** Throws DeploymentError `disk_full` unless `neededBytes` are free at the path. */
export function requireSpace(path: string, neededBytes: number): void {
  const { bavail, bsize, files, ffree } = statfsSync(path)
  const free = bavail * bsize
  // A file system that makes inodes as it needs them says that it has none.
  if (files > 0 && ffree < MIN_FREE_INODES) throw outOfInodes(path, ffree)
  if (free >= neededBytes) return
  const told = byteShortage(free, neededBytes)
  throw new DeploymentError(
    'disk_full',
    `${path} has ${told.free} free, this deployment needs ${told.needed}: free some space and run again. Nothing was changed.`,
  )
}

function outOfInodes(path: string, free: number): DeploymentError {
  return new DeploymentError(
    'disk_full',
    `The file system of ${path} has ${free} inodes left, this deployment needs at least ${MIN_FREE_INODES}: remove some files and run again. Nothing was changed.`,
  )
}
