const POINTER_BYTES = 8

/** The one weight that is not garbage yet. */
const last: unknown[][] = []

/**
 * Takes as much of V8's heap as a received chunk has bytes, for nothing. A chunk's own memory is not on that heap,
 * but is freed only when it is collected, which little else of a download causes: without this, up to 64 MB of used
 * chunks pile up, and some of that memory is never given back to the system.
 */
export function weighOnHeap(chunk: Uint8Array): void {
  last[0] = Array(Math.ceil(chunk.length / POINTER_BYTES))
}
