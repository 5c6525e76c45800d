import type { Transform } from 'node:stream'

/**
 * Feeds the pieces to a stream of node:zlib and yields the stream's output. Each piece of the output is valid until the
 * next one is requested. By the time the second piece after an input piece is requested, the stream has used up that
 * input piece, so two alternating buffers are enough for the input. If the packed data ends before the pieces do, the
 * output ends with the packed data, and the stream's `bytesWritten` shows how many bytes were used. Throws what the
 * stream or the pieces throw.
 */
export async function* unpack(stream: Transform, pieces: Iterable<Buffer>): AsyncGenerator<Buffer> {
  void feed(stream, pieces)
  yield* stream as AsyncIterable<Buffer>
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
