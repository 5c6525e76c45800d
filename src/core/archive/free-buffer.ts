/**
 * Gives a buffer's memory back at once: left to the garbage collector, megabytes in use for moments pile up to a
 * hundred. Only for a buffer that has all of its memory to itself (not from Node.js' pool for small ones) and that
 * nobody looks at any more.
 */
export function freeBuffer(buffer: Buffer): void {
  ;(buffer.buffer as ArrayBuffer).transfer(0)
}

/**
 * Frees a piece that a zlib stream of `chunkSize` has given out, once it is used: but only the last one in the buffer
 * that the stream fills, which the stream has done with; a piece before the last shares its memory with pieces to come.
 */
export function freeZlibPiece(piece: Buffer, chunkSize: number): void {
  const { buffer, byteOffset, length } = piece
  if (buffer.byteLength === chunkSize && byteOffset + length === chunkSize) freeBuffer(piece)
}

/** Frees a chunk of a stream, once it is used, that has its memory to itself; leaves one that may share it. */
export function freeChunk(chunk: Buffer): void {
  if (chunk.buffer.byteLength === chunk.length) freeBuffer(chunk)
}
