import { readdirSync, readlinkSync, realpathSync } from 'node:fs'

/** True if this process, in which the hub of a test also runs, has the file open. */
export function isOpen(path: string): boolean {
  const real = realpathSync(path)
  return readdirSync('/proc/self/fd').some(fd => targetOf(fd) === real)
}

function targetOf(fd: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`)
  } catch {
    // The folder was listed through this descriptor, which is closed by now.
    return undefined
  }
}
