import { read, readSync } from 'node:fs'
import type { Transform } from 'node:stream'
import { promisify } from 'node:util'
import { invalidArchive } from '../../core/archive/planned-tree.ts'
import { weighOnHeap } from '../../core/bytes.ts'
import { ArchiveError } from '../../core/errors.ts'

const NOTHING = Buffer.alloc(0)

/**
 * Reads ranges of a stream that arrives in pieces. Each range must begin at or after the end of the previous range.
 * Copies a range only if it spans several pieces.
 */
export class PieceReader {
  readonly #pieces: AsyncIterator<Buffer>
  readonly #tooShort: () => Error
  #piece: Buffer = NOTHING
  /** The position of the current piece in the stream. */
  #start = 0

  /** `tooShort` builds the error for a stream that ends before a requested range does. */
  constructor(pieces: AsyncIterable<Buffer>, tooShort: () => Error) {
    this.#pieces = pieces[Symbol.asyncIterator]()
    this.#tooShort = tooShort
  }

  /**
   * Returns `length` bytes from `position`, valid until the next read. Throws the error that `tooShort` builds if the
   * stream ends first.
   */
  async read(position: number, length: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for await (const part of this.stream(position, length)) parts.push(part.length < length ? Buffer.from(part) : part)
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
  }

  /**
   * Yields `length` bytes from `position`, in parts as they arrive. A part is valid until the next one is requested.
   */
  async *stream(position: number, length: number): AsyncGenerator<Buffer> {
    const end = position + length
    for (let at = position; at < end; ) {
      while (at >= this.#start + this.#piece.length) await this.#next()
      const part = this.#piece.subarray(at - this.#start, end - this.#start)
      at += part.length
      yield part
    }
  }

  /** Ends the stream of pieces, even if it was not read to its end. */
  async close(): Promise<void> {
    await this.#pieces.return?.()
  }

  async #next(): Promise<void> {
    const start = this.#start + this.#piece.length
    const { value, done } = await this.#pieces.next()
    if (done === true) throw this.#tooShort()
    this.#start = start
    this.#piece = value
  }
}

/**
 * Fills `buffer` with the bytes of the file from `position`, whatever the descriptor's own position is. Throws
 * ArchiveError `invalid_archive` if the file ends first.
 */
export function readExactly(fd: number, buffer: Buffer, position: number): void {
  for (let at = 0; at < buffer.length; ) {
    const count = readSync(fd, buffer, at, buffer.length - at, position + at)
    if (count === 0) throw truncated()
    at += count
  }
}

/**
 * Fills `buffer` from the beginning of the file. Reads in the thread pool, because reading many bytes takes a while.
 */
export async function readWhole(fd: number, buffer: Buffer): Promise<void> {
  for (let at = 0; at < buffer.length; ) {
    const { bytesRead } = await readAt(fd, buffer, at, buffer.length - at, at)
    if (bytesRead === 0) throw truncated()
    at += bytesRead
  }
}

export const readAt = promisify(read)

function truncated(): ArchiveError {
  return new ArchiveError(
    'invalid_archive',
    'The file of the artifact became shorter while it was read, so the artifact was refused: find out which process on this host shortens the file, and run again.',
  )
}

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

/**
 * Feeds the pieces to a stream of node:zlib and yields the stream's output. Each piece of the output is valid until the
 * next one is requested. One buffer is enough for the input: an input piece is requested once the stream has used up
 * the one before. If the packed data ends before the pieces do, the output ends with the packed data, and the stream's
 * `bytesWritten` shows how many bytes were used.
 */
export async function* unpack(stream: Transform, pieces: Iterable<Buffer>): AsyncGenerator<Buffer> {
  void feed(stream, pieces)
  for await (const piece of stream as AsyncIterable<Buffer>) {
    weighOnHeap(piece)
    yield piece
  }
}

/** Never rejects: the reader of the stream gets the error. */
async function feed(stream: Transform, pieces: Iterable<Buffer>): Promise<void> {
  try {
    for (const piece of pieces) await write(stream, piece)
    stream.end()
  } catch (error) {
    stream.destroy(error as Error)
  }
}

/** Resolves when the stream has used up the piece. */
function write(stream: Transform, piece: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(piece, error => (error ? reject(error) : resolve()))
  })
}
