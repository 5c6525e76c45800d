import { invalidArchive } from '../../core/archive/archive-entry.ts'
import { readExactly } from './read-exactly.ts'

/** The size of the largest view, in bytes. */
export const WINDOW_BYTES = 1024 * 1024

/** Shows parts of a file through one reused buffer, regardless of the descriptor's own position. */
export class ReadWindow {
  readonly fileSize: number
  readonly #fd: number
  readonly #buffer = Buffer.allocUnsafeSlow(WINDOW_BYTES)
  #start = 0
  #end = 0

  constructor(file: { readonly fd: number; readonly size: number }) {
    this.#fd = file.fd
    this.fileSize = file.size
  }

  /**
   * Returns a view of `length` bytes (at most WINDOW_BYTES) that is valid until the next view. If the buffer does not
   * contain these bytes yet, reads up to `ahead` bytes at once, for later views. Throws ArchiveError `invalid_archive`
   * if the file does not contain all of these bytes.
   */
  look(position: number, length: number, ahead: number = length): Buffer {
    if (position < 0 || position + length > this.fileSize) throw invalidArchive('it refers to bytes beyond its end')
    if (position < this.#start || position + length > this.#end) this.#fill(position, Math.max(length, ahead))
    const from = position - this.#start
    return this.#buffer.subarray(from, from + length)
  }

  /** Fills the caller's own buffer from `position`. Throws ArchiveError `invalid_archive` if the file ends first. */
  read(position: number, buffer: Buffer): void {
    readExactly(this.#fd, buffer, position)
  }

  #fill(position: number, most: number): void {
    const wanted = Math.min(most, WINDOW_BYTES, this.fileSize - position)
    this.read(position, this.#buffer.subarray(0, wanted))
    this.#start = position
    this.#end = position + wanted
  }
}
