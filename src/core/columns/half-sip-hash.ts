/** A key for `halfSipHash`, of 64 bits. */
export type HashKey = readonly [low: number, high: number]

const FINAL_ROUNDS = 3
/** The bytes of a UTF-16 unit, and of the number before the text. */
const UNIT_BYTES = 2
const NUMBER_BYTES = 4

/** The state of the current hash. Shared, because allocating a state would take longer than computing the hash. */
const state = new Int32Array(4)

/**
 * Returns the HalfSipHash-1-3 of a 32-bit number and a text in UTF-16, as an unsigned 32-bit number. The Linux kernel
 * uses this keyed hash for its tables: without the key, nobody can choose texts that collide.
 */
export function halfSipHash([low, high]: HashKey, number: number, text: string): number {
  state[0] = low
  state[1] = high
  state[2] = 0x6c796765 ^ low
  state[3] = 0x74656462 ^ high
  absorb(number)
  const pairs = text.length & ~1
  for (let at = 0; at < pairs; at += 2) absorb(text.charCodeAt(at) | (text.charCodeAt(at + 1) << 16))
  const rest = text.length > pairs ? text.charCodeAt(pairs) : 0
  absorb(((NUMBER_BYTES + text.length * UNIT_BYTES) << 24) | rest)
  state[2] = word(2) ^ 0xff
  for (let round = 0; round < FINAL_ROUNDS; round++) mix()
  return (word(1) ^ word(3)) >>> 0
}

function absorb(message: number): void {
  state[3] = word(3) ^ message
  mix()
  state[0] = word(0) ^ message
}

function mix(): void {
  let v0 = word(0)
  let v1 = word(1)
  let v2 = word(2)
  let v3 = word(3)
  v0 = (v0 + v1) | 0
  v1 = rotate(v1, 5) ^ v0
  v0 = rotate(v0, 16)
  v2 = (v2 + v3) | 0
  v3 = rotate(v3, 8) ^ v2
  v0 = (v0 + v3) | 0
  v3 = rotate(v3, 7) ^ v0
  v2 = (v2 + v1) | 0
  v1 = rotate(v1, 13) ^ v2
  v2 = rotate(v2, 16)
  state[0] = v0
  state[1] = v1
  state[2] = v2
  state[3] = v3
}

function word(at: number): number {
  return state[at] as number
}

function rotate(bits: number, by: number): number {
  return (bits << by) | (bits >>> (32 - by))
}
