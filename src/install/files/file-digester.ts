import { createHash } from 'node:crypto'
import { closeSync, constants, openSync, readSync } from 'node:fs'
import { TimeSlice } from './time-slice.ts'

const WINDOW_BYTES = 1024 * 1024
/** A file that was replaced by a pipe or a symlink in the meantime is neither waited for nor followed. */
const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOFOLLOW ?? 0)

/** Hashes many files one after another through one window, in slices between which signals are handled. */
export class FileDigester {
  readonly #window = Buffer.allocUnsafeSlow(WINDOW_BYTES)
  readonly #slice: TimeSlice

  constructor(signal?: AbortSignal) {
    this.#slice = new TimeSlice(signal)
  }

  /**
   * Lowercase hex SHA-256 of a file's bytes, of which there are `size`: of a file that has grown since, it reads little
   * more, and the digest is another. Throws the system's error, and the signal's reason once it is aborted.
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
