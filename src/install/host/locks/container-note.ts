import { writeFileSync } from 'node:fs'
import { lstatIfPresentSync } from '../../files/trees/tree-walk.ts'

const NOTE = 'Runs in containers use this host, so every run locks its journal while it fetches.\n'

/**
 * Notes in the file of the kernel lock, which stays, that processes in containers use the host: they cannot see which
 * processes of the machine have ended, so these lock their journals from now on. Never throws.
 */
export function noteContainers(kernelLock: string): void {
  if (areContainersNoted(kernelLock)) return
  try {
    writeFileSync(kernelLock, NOTE, { flag: 'r+' })
  } catch {
    // The next run in a container notes it.
  }
}

export function areContainersNoted(kernelLock: string): boolean {
  return (lstatIfPresentSync(kernelLock)?.size ?? 0) > 0
}
