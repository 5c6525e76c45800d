/** A 64-bit key for `halfSipHash`. */
export type HashKey = readonly [low: number, high: number]

const FINAL_ROUNDS = 3
/** The sizes of a UTF-16 unit, and of the number before the text. */
const UNIT_BYTES = 2
const NUMBER_BYTES = 4

/**
 * Returns the HalfSipHash-1-3 of a 32-bit number and a UTF-16 text, as an unsigned 32-bit number. Without the key,
 * nobody can choose texts that collide.
 */
export function halfSipHash([low, high]: HashKey, number: number, text: string): number {
  let v0 = low
  let v1 = high
  let v2 = low ^ 0x6c796765
  let v3 = high ^ 0x74656462
  const words = 2 + (text.length >>> 1)
  for (let round = 0; round < words + FINAL_ROUNDS; round++) {
    const word = round < words ? wordAt(round, number, text) : 0
    if (round === words) v2 ^= 0xff
    v3 ^= word
    // SipRound of HalfSipHash. Inline, because a function would have four results.
    v0 = (v0 + v1) | 0
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0
    v0 = (v0 << 16) | (v0 >>> 16)
    v2 = (v2 + v3) | 0
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2
    v0 = (v0 + v3) | 0
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0
    v2 = (v2 + v1) | 0
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2
    v2 = (v2 << 16) | (v2 >>> 16)
    v0 ^= word
  }
  return (v1 ^ v3) >>> 0
}

/**
 * Returns the word at a position. The first word is the number. Each of the next words has two units of the text. The
 * last word has the length in bytes and, if the number of units is odd, the last unit.
 */
function wordAt(at: number, number: number, text: string): number {
  if (at === 0) return number
  const unit = (at - 1) * 2
  if (unit + 1 < text.length) return text.charCodeAt(unit) | (text.charCodeAt(unit + 1) << 16)
  const rest = unit < text.length ? text.charCodeAt(unit) : 0
  return ((NUMBER_BYTES + text.length * UNIT_BYTES) << 24) | rest
}
