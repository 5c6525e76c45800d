import { write } from 'node:fs'
import { promisify } from 'node:util'
import { DeploymentError, errnoOf } from '../core/errors.ts'
import { WRITE_BLOCK_BYTES } from './limits.ts'

/**
 * Writes a stream of chunks to a file descriptor from position 0 in large blocks, filling one block while it writes the
 * other. `onBlock` sees every byte once, in order. Throws DeploymentError `disk_full` or `host_not_writable`.
 */
export class BlockWriter {
  readonly #fd: number
  readonly #onBlock: (block: Buffer) => void
  #filling = Buffer.allocUnsafeSlow(WRITE_BLOCK_BYTES)
  #spare = Buffer.allocUnsafeSlow(WRITE_BLOCK_BYTES)
  #used = 0
  #position = 0
  #writing: Promise<void> = Promise.resolve()

  constructor(fd: number, onBlock: (block: Buffer) => void) {
    this.#fd = fd
    this.#onBlock = onBlock
  }

  /** Copies the chunk's bytes; waits while both blocks are full. */
  async add(chunk: Buffer): Promise<void> {
    for (let taken = 0; taken < chunk.length; ) {
      const copied = chunk.copy(this.#filling, this.#used, taken)
      taken += copied
      this.#used += copied
      if (this.#used === this.#filling.length) await this.#turn()
    }
  }

  /** Writes the remaining bytes; afterwards the operating system has every byte. */
  async finish(): Promise<void> {
    await this.#turn()
    await this.#writing
  }

  /** Waits for any write in progress, so that the descriptor may be closed. Never throws. */
  async settle(): Promise<void> {
    await this.#writing.catch(() => {})
  }

  async #turn(): Promise<void> {
    await this.#writing
    const block = this.#filling.subarray(0, this.#used)
    this.#writing = this.#write(block)
    this.#writing.catch(() => {})
    this.#onBlock(block)
    this.#position += block.length
    this.#used = 0
    ;[this.#filling, this.#spare] = [this.#spare, this.#filling]
  }

  async #write(block: Buffer): Promise<void> {
    const start = this.#position
    try {
      for (let done = 0; done < block.length; ) {
        const { bytesWritten } = await writeAt(this.#fd, block, done, block.length - done, start + done)
        done += bytesWritten
      }
    } catch (error) {
      throw toWriteError(error)
    }
  }
}

const writeAt = promisify(write)

/** Explains a system error that occurred while a download was written. */
export function toWriteError(error: unknown): DeploymentError {
  const errno = errnoOf(error) ?? 'unknown error'
  return errno === 'ENOSPC' || errno === 'EDQUOT'
    ? new DeploymentError(
        'disk_full',
        `No space left for the artifact (${errno}): free some space in the runner's temporary folder.`,
        { cause: error },
      )
    : new DeploymentError(
        'host_not_writable',
        `The artifact could not be written (${errno}): check the runner's temporary folder.`,
        { cause: error },
      )
}
