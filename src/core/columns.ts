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

const INITIAL_SLOTS = 1024
/** A slot has two words: a hash, and a number plus one. In an empty slot, both words are zero. */
const SLOT_WORDS = 2
/** The share of slots that may be taken, so that a search soon reaches an empty slot. */
const MAX_FILLING = 1 / 2

/** A hash table of numbers, with open addressing, outside the JavaScript heap. */
export class HashIndex {
  #words = new Uint32Array(INITIAL_SLOTS * SLOT_WORDS)
  #count = 0

  /** Adds a number below 2^32 - 1 under a 32-bit hash. Several numbers may have the same hash. */
  add(hash: number, number: number): void {
    if (this.#count >= this.#slots * MAX_FILLING) this.#grow()
    this.#put(hash, number)
    this.#count += 1
  }

  /** Returns a number that was added under this hash and for which `isRight` is true, or undefined. */
  find(hash: number, isRight: (number: number) => boolean): number | undefined {
    for (let slot = this.#slotOf(hash); ; slot = this.#slotOf(slot + 1)) {
      const number = this.#numberIn(slot)
      if (number === -1) return undefined
      if (this.#words[slot * SLOT_WORDS] === hash && isRight(number)) return number
    }
  }

  get #slots(): number {
    return this.#words.length / SLOT_WORDS
  }

  #slotOf(hash: number): number {
    return hash % this.#slots
  }

  /** Returns -1 for an empty slot. */
  #numberIn(slot: number): number {
    return (this.#words[slot * SLOT_WORDS + 1] as number) - 1
  }

  #put(hash: number, number: number): void {
    let slot = this.#slotOf(hash)
    while (this.#numberIn(slot) !== -1) slot = this.#slotOf(slot + 1)
    this.#words[slot * SLOT_WORDS] = hash
    this.#words[slot * SLOT_WORDS + 1] = number + 1
  }

  #grow(): void {
    const before = this.#words
    this.#words = new Uint32Array(before.length * 2)
    for (let at = 0; at < before.length; at += SLOT_WORDS) {
      const number = (before[at + 1] as number) - 1
      if (number !== -1) this.#put(before[at] as number, number)
    }
  }
}

/** The initial room for numbers. */
const INITIAL_LENGTH = 1024

/**
 * Many numbers by index, outside the JavaScript heap: 32-bit integers, or any numbers. Grows as numbers are added.
 */
export class NumberColumn {
  readonly #Kind: typeof Int32Array | typeof Float64Array
  #numbers: Int32Array | Float64Array
  #length = 0

  constructor(kind: 'int32' | 'float64') {
    this.#Kind = kind === 'int32' ? Int32Array : Float64Array
    this.#numbers = new this.#Kind(INITIAL_LENGTH)
  }

  get length(): number {
    return this.#length
  }

  add(number: number): void {
    if (this.#length === this.#numbers.length) this.#grow()
    this.#numbers[this.#length] = number
    this.#length += 1
  }

  /** Replaces the number at an index below `length`. */
  set(index: number, number: number): void {
    this.#numbers[index] = number
  }

  /** Returns the number at an index below `length`. */
  at(index: number): number {
    return this.#numbers[index] as number
  }

  #grow(): void {
    const { buffer } = this.#numbers
    this.#numbers = new this.#Kind((buffer as ArrayBuffer).transfer(buffer.byteLength * 2))
  }
}

/** The number of texts in one block. */
const BLOCK_TEXTS = 1024
/** The initial room for each text, enough for most names. */
const BYTES_PER_TEXT = 32
/** The maximum number of UTF-8 bytes that one UTF-16 unit can need. */
const BYTES_PER_UNIT = 3

/** Texts, one after another, and the position at which each ends. */
interface Block {
  bytes: Buffer
  readonly ends: Uint32Array
}

/**
 * Many texts, by number, outside the JavaScript heap. On the heap, the garbage collector would copy each string twice
 * before leaving it alone. It would then double the room for new objects. A lone surrogate becomes U+FFFD, as in every
 * path that is passed to the system.
 */
export class PackedTexts {
  readonly #blocks: Block[] = []
  #length = 0

  get length(): number {
    return this.#length
  }

  add(text: string): void {
    const at = this.#length % BLOCK_TEXTS
    if (at === 0) this.#blocks.push(newBlock())
    const block = this.#blocks.at(-1) as Block
    const start = block.ends[at - 1] ?? 0
    reserve(block, start + text.length * BYTES_PER_UNIT)
    block.ends[at] = start + block.bytes.write(text, start)
    this.#length += 1
  }

  /** Returns the text with this number, which must be below `length`. */
  at(index: number): string {
    const { bytes, ends } = this.#blocks[Math.floor(index / BLOCK_TEXTS)] as Block
    const at = index % BLOCK_TEXTS
    return bytes.toString('utf8', ends[at - 1] ?? 0, ends[at])
  }
}

function newBlock(): Block {
  return { bytes: Buffer.from(new ArrayBuffer(BLOCK_TEXTS * BYTES_PER_TEXT)), ends: new Uint32Array(BLOCK_TEXTS) }
}

/** Makes sure that a block has room for this many bytes. If the block must grow, frees the old memory at once. */
function reserve(block: Block, bytes: number): void {
  const { buffer, length } = block.bytes
  if (bytes > length) block.bytes = Buffer.from((buffer as ArrayBuffer).transfer(Math.max(bytes, length * 1.5)))
}
