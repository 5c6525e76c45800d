import { invalidArchive } from '../../core/archive/archive-entry.ts'

const NOTHING = Buffer.alloc(0)

/**
 * Reads ranges of a stream of pieces, each range after the one before it; copies only a range that spans two pieces.
 */
export class PieceReader {
  readonly #pieces: AsyncIterator<Buffer>
  #piece: Buffer = NOTHING
  /** Position of the piece. */
  #start = 0

  constructor(pieces: AsyncIterable<Buffer>) {
    this.#pieces = pieces[Symbol.asyncIterator]()
  }

  /**
   * `length` bytes from `position`, valid until the next read. Throws ArchiveError `invalid_archive` when the stream
   * ends.
   */
  async read(position: number, length: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for await (const part of this.stream(position, length)) parts.push(part.length < length ? Buffer.from(part) : part)
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
  }

  /** The same bytes in parts as they arrive, each of which is valid until the next one is requested. */
  async *stream(position: number, length: number): AsyncGenerator<Buffer> {
    const end = position + length
    for (let at = position; at < end; ) {
      while (at >= this.#start + this.#piece.length) await this.#next()
      const part = this.#piece.subarray(at - this.#start, end - this.#start)
      at += part.length
      yield part
    }
  }

  /** Ends the stream of pieces, read to its end or not. */
  async close(): Promise<void> {
    await this.#pieces.return?.()
  }

  async #next(): Promise<void> {
    const start = this.#start + this.#piece.length
    const { value, done } = await this.#pieces.next()
    if (done === true) throw invalidArchive('it is shorter than when it was listed')
    this.#start = start
    this.#piece = value
  }
}
