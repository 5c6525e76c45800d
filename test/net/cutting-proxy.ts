import net from 'node:net'
import type { TestContext } from 'node:test'
import { serveSocket } from './loopback-server.ts'

interface CuttingProxy {
  /** Without a slash at the end. */
  readonly url: string
  /** What passed to the clients, by connection. */
  readonly passed: readonly Passed[]
}

interface Passed {
  bytes: number
  /** The number of bytes before the body; undefined until they have passed. */
  headBytes: number | undefined
}

const END_OF_HEAD = Buffer.from('\r\n\r\n')

/** A TCP proxy that ends the n-th connection after `cuts[n]` bytes of the answer, and passes all bytes of the others. */
export async function startCuttingProxy(t: TestContext, port: number, cuts: readonly number[]): Promise<CuttingProxy> {
  const passed: Passed[] = []
  const { url } = await serveSocket(t, (client, nth) => {
    const own: Passed = { bytes: 0, headBytes: undefined }
    passed.push(own)
    let left = cuts[nth - 1] ?? Number.POSITIVE_INFINITY
    const upstream = net.connect(port, '127.0.0.1')
    upstream.on('error', () => client.destroy())
    client.on('close', () => upstream.destroy())
    if (left === 0) client.end()
    client.pipe(upstream)
    upstream.on('data', chunk => {
      const piece = chunk.subarray(0, left)
      left -= piece.length
      // The hub writes the whole head at once.
      if (own.headBytes === undefined && piece.includes(END_OF_HEAD))
        own.headBytes = own.bytes + piece.indexOf(END_OF_HEAD) + END_OF_HEAD.length
      own.bytes += piece.length
      if (!client.writable) return
      if (left === 0) client.end(piece)
      else if (!client.write(piece)) {
        upstream.pause()
        client.once('drain', () => upstream.resume())
      }
    })
    upstream.on('end', () => client.end())
  })
  return { url, passed }
}

/** The number of bytes of bodies that have passed. */
export function bodyBytes({ passed }: CuttingProxy): number {
  return passed.reduce((sum, { bytes, headBytes = bytes }) => sum + bytes - headBytes, 0)
}
