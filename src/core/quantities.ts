const UNITS = ['kB', 'MB', 'GB'] as const
const [SECOND_MS, MINUTE_MS] = [1000, 60_000]
/** A number of at least this size rounds to 10 or more and is shown without a decimal. */
const PLAIN_FROM = 9.95

/** Formats a number of bytes for people: `919 bytes`, `8.9 MB`. */
export function bytesInWords(bytes: number): string {
  if (bytes < 1000) return bytes === 1 ? '1 byte' : `${bytes} bytes`
  let [size, unit] = [bytes, -1]
  while (size >= 999.5 && unit < UNITS.length - 1) [size, unit] = [size / 1000, unit + 1]
  return `${withPoint(size)} ${UNITS[unit]}`
}

/** Formats a duration for people: `15 ms`, `4.2 s`, `2 min 5 s`. */
export function durationInWords(ms: number): string {
  if (ms < 99.5) return `${Math.round(ms)} ms`
  if (ms < MINUTE_MS - SECOND_MS / 2) return `${withPoint(ms / SECOND_MS)} s`
  const seconds = Math.round(ms / SECOND_MS)
  return `${countInWords(Math.floor(seconds / 60))} min${seconds % 60 === 0 ? '' : ` ${seconds % 60} s`}`
}

/** Formats a count with its noun: `1 file`, `3,012 files`; without a noun, `3,012`. */
export function countInWords(count: number, noun?: string): string {
  const digits = String(count).replace(/\B(?=(?:\d{3})+$)/g, ',')
  return noun === undefined ? digits : `${digits} ${noun}${count === 1 ? '' : 's'}`
}

/** Lists the first items and the number of the others: `a, b and 3 more`. */
export function listFirst(items: readonly string[], max: number, separator = ', '): string {
  const more = items.length - max
  return `${items.slice(0, max).join(separator)}${more > 0 ? ` and ${more} more` : ''}`
}

/** Lists all items: `a, b and c`. */
export function listAll(items: readonly string[]): string {
  const last = items.at(-1) ?? ''
  return items.length < 2 ? last : `${items.slice(0, -1).join(', ')} and ${last}`
}

/** Returns enough of a digest to recognize it. */
export function shortDigest(hex: string): string {
  return hex.length <= 16 ? hex : `${hex.slice(0, 8)}…${hex.slice(-4)}`
}

function withPoint(size: number): string {
  return size < PLAIN_FROM ? size.toFixed(1).replace(/\.0$/, '') : String(Math.round(size))
}
