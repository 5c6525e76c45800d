import { statfs } from 'node:fs/promises'
import { HubError } from '../../errors.ts'

/** The disk that uploads share with the database. It must never be full, because the hub could then write no report. */
export interface Disk {
  /** A folder on the disk. */
  readonly folder: string
  /** The number of bytes that must stay free. */
  readonly reserveBytes: number
  readonly freeBytes: FreeBytes
}

export type FreeBytes = (folder: string) => Promise<number>

export async function freeBytesOf(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}

/** Throws HubError 507 if the disk lacks space for this many bytes in addition to the reserve. */
export async function requireRoom({ folder, reserveBytes, freeBytes }: Disk, bytes: number): Promise<void> {
  const [free, needed] = [await freeBytes(folder), bytes + reserveBytes]
  if (free >= needed) return
  throw new HubError(
    507,
    `The hub's disk has ${free} bytes free, but the hub needs ${needed} for the sealed files that it receives and as a reserve for reports: free some space on that disk.`,
  )
}
