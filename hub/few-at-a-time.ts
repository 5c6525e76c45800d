/** Limits how much work runs at once. Waiting work starts in the order in which it arrived. */
export class FewAtATime {
  readonly #most: number
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(most: number) {
    this.#most = most
  }

  /** Resolves or rejects as the work does. The next work starts in either case. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running === this.#most) await new Promise<void>(resolve => this.#waiting.push(resolve))
    else this.#running += 1
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      // The work that has waited longest takes the place of the work that has just ended.
      if (next !== undefined) next()
      else this.#running -= 1
    }
  }
}
