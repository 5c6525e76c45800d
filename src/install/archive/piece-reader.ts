import { invalidArchive } from '../../core/archive/archive-entry.ts'

const NOTHING = Buffer.alloc(0)

/** Reads ranges of bytes that come in pieces, each behind the one before it, without copying what lies in one piece. */
export class PieceReader {
  readonly #pieces: AsyncIterator<Buffer>
  #piece: Buffer = NOTHING
  /** Position of the piece. */
  #start = 0

  constructor(pieces: AsyncIterable<Buffer>) {
    this.#pieces = pieces[Symbol.asyncIterator]()
  }

  /** `length` bytes from `position`, which hold until the next are read. Throws ArchiveError `invalid_archive` when they do not come. */
  async read(position: number, length: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for await (const part of this.stream(position, length)) parts.push(part.length < length ? Buffer.from(part) : part)
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
  }

  /** The same bytes in parts as they come, each of which holds until the next is asked for. */
  async *stream(position: number, length: number): AsyncGenerator<Buffer> {
    const end = position + length
    for (let at = position; at < end; ) {
      while (at >= this.#start + this.#piece.length) await this.#next()
      const part = this.#piece.subarray(at - this.#start, end - this.#start)
      at += part.length
      yield part
    }
  }

  /** Lets go of the pieces that have not come. */
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
