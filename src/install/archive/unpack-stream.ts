import type { Transform } from 'node:stream'

/**
 * What a stream of node:zlib makes of the pieces, in pieces that are valid until the next one is requested. A piece that
 * goes in may be overwritten once the next but one is requested: so two buffers in turn are enough.
 * Throws what the stream or the pieces throw. Ends early where the packed data does: the stream's `bytesWritten` says so.
 */
export async function* unpack(stream: Transform, pieces: Iterable<Buffer>): AsyncGenerator<Buffer> {
  void feed(stream, pieces)
  yield* stream as AsyncIterable<Buffer>
}

/** Never rejects: what fails is thrown to the stream's reader. */
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

/** Resolves when the stream has used the piece up. */
function write(stream: Transform, piece: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(piece, error => (error ? reject(error) : resolve()))
  })
}
