/** Runs at most so many pieces of work at once, in the order in which they come. */
export class FewAtATime {
  readonly #most: number
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(most: number) {
    this.#most = most
  }

  /** Resolves or rejects as the work does; the next one starts in either case. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running === this.#most) await new Promise<void>(resolve => this.#waiting.push(resolve))
    else this.#running += 1
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      // It takes this one's place.
      if (next !== undefined) next()
      else this.#running -= 1
    }
  }
}
