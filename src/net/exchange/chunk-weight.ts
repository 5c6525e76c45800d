const POINTER_BYTES = 8

/** The array that `weighOnHeap` allocated last. All earlier ones are garbage. */
const last: unknown[][] = []

/**
 * Allocates as many bytes on V8's heap as a received chunk has, only to cause garbage collections. A chunk's own memory
 * is not on that heap, but is freed only by a collection, and little else in a download causes one. Without this
 * function, up to 64 MB of used chunks pile up, and some of that memory is never given back to the system.
 */
export function weighOnHeap(chunk: Uint8Array): void {
  // Otherwise, a collection that the new array causes would copy the old array and count it as surviving memory.
  last.length = 0
  last[0] = Array(Math.ceil(chunk.length / POINTER_BYTES))
}
