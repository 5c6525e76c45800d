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
