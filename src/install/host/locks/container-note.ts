import { writeFileSync } from 'node:fs'
import { lstatIfPresentSync } from '../../files/trees/tree-walk.ts'

const NOTE = 'Runs in containers use this host, so every run locks its journal while it fetches.\n'

/**
 * Notes in the kernel lock's file, which is never removed, that processes in containers use this host. Such processes
 * cannot see which processes of the machine have ended, so from now on, every run on this host locks its journal. If
 * the note cannot be written, the next run in a container writes it.
 */
export function noteContainers(kernelLock: string): void {
  if (areContainersNoted(kernelLock)) return
  try {
    writeFileSync(kernelLock, NOTE, { flag: 'r+' })
  } catch {
    // The next run in a container writes the note.
  }
}

export function areContainersNoted(kernelLock: string): boolean {
  return (lstatIfPresentSync(kernelLock)?.size ?? 0) > 0
}
