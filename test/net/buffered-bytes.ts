import { openSync } from 'node:fs'
import { createTestedWire } from './tested-wire.ts'

const MEBIBYTE = 1024 * 1024
/** The most bytes that a socket reads at once. */
const CHUNK_BYTES = 64 * 1024

if (import.meta.main) {
  const [url = '', path = ''] = process.argv.slice(2)
  console.log(await bufferedBytes(url, openSync(path, 'w')))
}

/** The 90th percentile, over the samples of a download, of the bytes in all buffers, used or not. */
async function bufferedBytes(url: string, fd: number): Promise<number> {
  const samples: number[] = []
  const onProgress = (received: number) => {
    // Takes a sample only every 2 MiB, because a sample creates garbage, too.
    if (received % (2 * MEBIBYTE) < CHUNK_BYTES) samples.push(process.memoryUsage().arrayBuffers)
  }
  const answer = await createTestedWire().download({ url, fd, onProgress, maxBytes: 2 ** 30, timeoutMs: 600_000 })
  if (!answer.ok) throw new Error(`not downloaded: ${JSON.stringify(answer)}`)
  return samples.sort((a, b) => a - b)[Math.floor(samples.length * 0.9)] ?? Number.NaN
}
