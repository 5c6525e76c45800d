import { read, readSync } from 'node:fs'
import { promisify } from 'node:util'
import { ArchiveError } from '../../core/errors.ts'

/**
 * Fills `buffer` with the bytes of the file from `position`, whatever the descriptor's own position is. Throws
 * ArchiveError `invalid_archive` if the file ends first.
 */
export function readExactly(fd: number, buffer: Buffer, position: number): void {
  for (let at = 0; at < buffer.length; ) {
    const count = readSync(fd, buffer, at, buffer.length - at, position + at)
    if (count === 0) throw truncated()
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
    if (bytesRead === 0) throw truncated()
    at += bytesRead
  }
}

const readAt = promisify(read)

function truncated(): ArchiveError {
  return new ArchiveError(
    'invalid_archive',
    'The file of the artifact became shorter while it was read, so the artifact was refused: find out which process on this host shortens the file, and run again.',
  )
}
