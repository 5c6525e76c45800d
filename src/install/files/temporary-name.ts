import { randomUUID } from 'node:crypto'

/**
 * Returns a path next to `path` that contains the id of this process, so that the files of a killed process can be
 * found and removed.
 */
export function temporaryName(path: string): string {
  return `${path}.${process.pid}.${randomUUID()}.tmp`
}

/** Returns the id of the process that a temporary name belongs to, or undefined for any other name. */
export function ownerOfTemporary(name: string): number | undefined {
  const pid = /\.(\d{1,10})\.[0-9a-f-]{36}\.tmp$/.exec(name)?.[1]
  return pid === undefined ? undefined : Number(pid)
}
