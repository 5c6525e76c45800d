import { read, readSync } from 'node:fs'
import { promisify } from 'node:util'
import { invalidArchive } from '../../core/archive/archive-entry.ts'

/**
 * Fills `buffer` with the bytes of the file from `position`, whatever the descriptor's own position is. Throws
 * ArchiveError `invalid_archive` if the file ends first.
 */
export function readExactly(fd: number, buffer: Buffer, position: number): void {
  for (let at = 0; at < buffer.length; ) {
    const count = readSync(fd, buffer, at, buffer.length - at, position + at)
    if (count === 0) throw invalidArchive('its file became shorter while it was read')
    at += count
  }
}

/**
 * Fills `buffer` from the beginning of the file. Reads in the thread pool, because reading many bytes takes a while.
 * Throws as `readExactly` does.
 */
export async function readWhole(fd: number, buffer: Buffer): Promise<void> {
  for (let at = 0; at < buffer.length; ) {
    const { bytesRead } = await readAt(fd, buffer, at, buffer.length - at, at)
    if (bytesRead === 0) throw invalidArchive('its file became shorter while it was read')
    at += bytesRead
  }
}

const readAt = promisify(read)
