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
