import { constants, createInflateRaw, deflateRawSync } from 'node:zlib'
import { unpack } from '../../../src/install/archive/pieces.ts'

const MEBIBYTE = 1024 * 1024
const UNPACKED_BYTES = 512 * MEBIBYTE
const CHUNK_BYTES = 256 * 1024

if (import.meta.main) console.log(await unpackedBytes())

/** The 90th percentile, over all chunks of an unpacked stream, of the bytes in all buffers, used or not. */
async function unpackedBytes(): Promise<number> {
  const samples: number[] = []
  const packed = pack()
  for await (const _ of unpack(createInflateRaw({ chunkSize: CHUNK_BYTES }), [packed]))
    samples.push(process.memoryUsage().arrayBuffers)
  return samples.sort((a, b) => a - b)[Math.floor(samples.length * 0.9)] ?? Number.NaN
}

/** The packed bytes of zeros, packed piece by piece, so that no large buffer is left over. */
function pack(): Buffer {
  const zeros = Buffer.alloc(MEBIBYTE)
  const piece = deflateRawSync(zeros, { finishFlush: constants.Z_FULL_FLUSH })
  const pieces = Array.from({ length: UNPACKED_BYTES / MEBIBYTE - 1 }, () => piece)
  return Buffer.concat([...pieces, deflateRawSync(zeros)])
}
