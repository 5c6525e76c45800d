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
