import { createHash } from 'node:crypto'
import { closeSync, constants, openSync, readSync } from 'node:fs'
import { TimeSlice } from './time-slice.ts'

const WINDOW_BYTES = 1024 * 1024
/** A pipe or a symlink that has replaced a file in the meantime is neither waited for nor followed. */
const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOFOLLOW ?? 0)

/** Hashes many files one after another through one buffer, in slices between which signals are handled. */
export class FileDigester {
  readonly #window = Buffer.allocUnsafeSlow(WINDOW_BYTES)
  readonly #slice: TimeSlice

  constructor(signal?: AbortSignal) {
    this.#slice = new TimeSlice(signal)
  }

  /**
   * Returns the lowercase hex SHA-256 of a file that had `size` bytes when it was examined. If the file has grown since
   * then, reads at most 1 MiB more; the digest is then a different one. Throws the system's error, and the signal's
   * reason once the signal is aborted.
   */
  async sha256(path: string, size: number): Promise<string> {
    if (this.#slice.isOver()) await this.#slice.giveBack()
    const digest = createHash('sha256')
    const fd = openSync(path, FLAGS)
    try {
      for (let [count, read] = [-1, 0]; count !== 0 && read <= size; read += count) {
        count = readSync(fd, this.#window)
        digest.update(this.#window.subarray(0, count))
        if (this.#slice.isOver()) await this.#slice.giveBack()
      }
    } finally {
      closeSync(fd)
    }
    return digest.digest('hex')
  }
}
