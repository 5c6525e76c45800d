const POINTER_BYTES = 8
/** V8 keeps a larger array elsewhere, and allocating one there takes longer. */
const MAX_ARRAY_BYTES = 64 * 1024

/** The array that `weighOnHeap` allocated last. All earlier ones are garbage. */
const last: unknown[][] = []

/**
 * Allocates as many bytes on V8's heap as a chunk has, only to cause garbage collections. The memory of a chunk that
 * Node.js has received or unpacked is not on that heap, but is freed only by a collection, and little else causes one.
 * Without this function, up to 64 MB of used chunks pile up, and some of that memory is never given back to the system.
 * Each new chunk then takes memory that the system must first provide, and that is not in the processor's cache. V8
 * does notice such piles, but then collects its whole heap, not only its young objects.
 */
export function weighOnHeap(chunk: Uint8Array): void {
  for (let left = chunk.length; left > 0; left -= MAX_ARRAY_BYTES) {
    // Otherwise, a collection that the new array causes would copy the old array and count it as surviving memory.
    last.length = 0
    last[0] = Array(Math.ceil(Math.min(left, MAX_ARRAY_BYTES) / POINTER_BYTES))
  }
}
