/**
 * Gives a buffer's memory back at once: left to the garbage collector, megabytes in use for moments pile up to a hundred. Only for a buffer
 * that has all of its memory to itself (not from Node.js' pool for small ones) and that nobody looks at any more.
 */
export function freeBuffer(buffer: Buffer): void {
  ;(buffer.buffer as ArrayBuffer).transfer(0)
}
