const POINTER_BYTES = 8

/** The latest weight, the only one that is not garbage yet. */
const last: unknown[][] = []

/**
 * Allocates as many bytes on V8's heap as a received chunk has, only to cause garbage collections. A chunk's own memory
 * is not on that heap, but is freed only when the chunk is collected, which little else of a download causes: without
 * this, up to 64 MB of used chunks pile up, and some of that memory is never given back to the system.
 */
export function weighOnHeap(chunk: Uint8Array): void {
  // The collection that the new one may cause would copy the old one, and count it as what has survived.
  last.length = 0
  last[0] = Array(Math.ceil(chunk.length / POINTER_BYTES))
}
