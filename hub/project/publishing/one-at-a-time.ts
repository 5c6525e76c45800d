/** Runs pieces of work one after the other, in the order in which they come. */
export class OneAtATime {
  #last: Promise<unknown> = Promise.resolve()

  /** Resolves or rejects as the work does; the next one starts in either case. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const ended = this.#last.then(work)
    this.#last = ended.catch(() => {})
    return await ended
  }
}
