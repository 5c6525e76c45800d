import type { Transform } from 'node:stream'

/**
 * The output of a stream of node:zlib for these pieces, each piece of it valid until the next one is requested. A
 * piece of the input is used up before the next but one is requested, so that two buffers in turn are enough. Ends
 * early where the packed data does: the stream's `bytesWritten` shows it.
 * Throws what the stream or the pieces throw.
 */
export async function* unpack(stream: Transform, pieces: Iterable<Buffer>): AsyncGenerator<Buffer> {
  void feed(stream, pieces)
  yield* stream as AsyncIterable<Buffer>
}

/** Never rejects: an error is thrown to the stream's reader. */
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
