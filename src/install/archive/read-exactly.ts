import { read, readSync } from 'node:fs'
import { promisify } from 'node:util'
import { invalidArchive } from '../../core/archive/archive-entry.ts'

/**
 * Fills `buffer` from `position` of the file, wherever its descriptor's own position is.
 * Throws ArchiveError `invalid_archive` when the file ends before.
 */
export function readExactly(fd: number, buffer: Buffer, position: number): void {
  for (let at = 0; at < buffer.length; ) {
    const count = readSync(fd, buffer, at, buffer.length - at, position + at)
    if (count === 0) throw invalidArchive('its file is shorter than it was')
    at += count
  }
}

/** The same in the thread pool, from the file's beginning: for so many bytes that they take their time. */
export async function readWhole(fd: number, buffer: Buffer): Promise<void> {
  for (let at = 0; at < buffer.length; ) {
    const { bytesRead } = await readAt(fd, buffer, at, buffer.length - at, at)
    if (bytesRead === 0) throw invalidArchive('its file is shorter than it was')
    at += bytesRead
  }
}

const readAt = promisify(read)
