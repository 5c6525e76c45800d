import type { Transform } from 'node:stream'
import { weighOnHeap } from '../../core/chunk-weight.ts'

/** The number of chunks that a stream unpacks ahead of its reader. */
const CHUNKS_AHEAD = 4

/**
 * Returns the options for a stream of node:zlib that unpacks into chunks of this many bytes, some chunks ahead of its
 * reader. By default, such a stream would begin the next chunk only once its reader asks for it. In object mode, a
 * stream counts chunks, and its reader gets them one by one, not joined.
 */
export function unpackingAhead(chunkSize: number) {
  return { chunkSize, readableObjectMode: true, readableHighWaterMark: CHUNKS_AHEAD }
}

/**
 * Feeds the pieces to a stream of node:zlib and yields the stream's output. Each piece of the output is valid until the
 * next one is requested. Two alternating buffers are enough for the input: by the time an input piece is requested, the
 * stream has used up the input piece before the previous one. If the packed data ends before the pieces do, the output
 * ends with the packed data, and the stream's `bytesWritten` shows how many bytes were used. Throws what the stream or
 * the pieces throw.
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
    let written: Promise<void> = Promise.resolve()
    for (const piece of pieces) {
      await written
      written = write(stream, piece)
      written.catch(() => {})
    }
    await written
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
