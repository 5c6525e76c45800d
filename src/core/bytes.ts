const KIBIBYTE = 1024
const UNITS = [
  ['GiB', KIBIBYTE ** 3],
  ['MiB', KIBIBYTE ** 2],
  ['KiB', KIBIBYTE],
] as const

export interface ByteShortage {
  readonly free: string
  readonly needed: string
}

/**
 * Formats the free and the needed bytes for people. Both have the unit that suits the needed bytes, and at most one
 * decimal. The free bytes are rounded down and the needed bytes up, so that the two never read the same.
 */
export function byteShortage(freeBytes: number, neededBytes: number): ByteShortage {
  const [unit, size] = UNITS.find(([, bytes]) => neededBytes >= bytes) ?? (['KiB', KIBIBYTE] as const)
  const tenths = size / 10
  return {
    free: `${Math.floor(freeBytes / tenths) / 10} ${unit}`,
    needed: `${Math.ceil(neededBytes / tenths) / 10} ${unit}`,
  }
}

const POINTER_BYTES = 8
/** V8 keeps a larger array elsewhere, and allocating one there takes longer. */
const MAX_ARRAY_BYTES = 64 * 1024

/** The array that `weighOnHeap` allocated last. All earlier ones are garbage. */
const last: unknown[][] = []

/**
 * Allocates as many bytes on V8's heap as a chunk has, only to cause garbage collections. The memory of a chunk that
 * Node.js has received or unpacked is not on that heap, but is freed only by a collection, and little else causes one.
 * Without this function, up to 64 MB of used chunks pile up, and some of that memory is never given back to the system.
 * Each new chunk then takes memory that the system must first provide, and that is not in the processor's cache.
 *
 * Without it, X takes 155 MB instead of 110 (target: 130) and 20 % more processor time. If only received chunks weigh,
 * X takes 165 MB. If only unpacked ones weigh, X takes 146 MB, and an update of L 201 instead of 185 (target: 190). AMD
 * EPYC.
 */
export function weighOnHeap(chunk: Uint8Array): void {
  for (let left = chunk.length; left > 0; left -= MAX_ARRAY_BYTES) {
    // Otherwise, a collection that the new array causes would copy the old array and count it as surviving memory.
    last.length = 0
    last[0] = Array(Math.ceil(Math.min(left, MAX_ARRAY_BYTES) / POINTER_BYTES))
  }
}
