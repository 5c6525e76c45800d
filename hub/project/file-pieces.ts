import { createHash } from 'node:crypto'
import { closeSync, openSync, readSync } from 'node:fs'

const PIECE_BYTES = 256 * 1024

/** Yields a file's bytes in pieces of at most 256 KiB, each in its own memory. */
export function* readPieces(path: string): Generator<Buffer> {
  const fd = openSync(path, 'r')
  try {
    for (;;) {
      const piece = Buffer.allocUnsafe(PIECE_BYTES)
      const length = readSync(fd, piece)
      if (length === 0) return
      yield piece.subarray(0, length)
    }
  } finally {
    closeSync(fd)
  }
}

/** The SHA-256 of a file's bytes, in lowercase hex. */
export function hashFile(path: string): string {
  const hash = createHash('sha256')
  for (const piece of readPieces(path)) hash.update(piece)
  return hash.digest('hex')
}
