import type { Context } from 'hono'
import { HubError } from '../errors.ts'

/**
 * The body as it is, in memory once when its length was announced. Throws HubError 415 when it is not sent as
 * application/octet-stream, 411 without a length, 413 when it is longer than `maxBytes`, and 400 when it ends early.
 */
export async function readBodyBytes(c: Context, maxBytes: number): Promise<Uint8Array> {
  if (c.req.header('content-type') !== 'application/octet-stream') {
    throw new HubError(415, 'The sealed file must be sent as application/octet-stream.')
  }
  const bytes = Buffer.allocUnsafe(announcedLength(c, maxBytes))
  let length = 0
  for await (const chunk of c.req.raw.body ?? []) {
    if (length + chunk.length > bytes.length) throw new HubError(413, 'The body is longer than its Content-Length.')
    bytes.set(chunk, length)
    length += chunk.length
  }
  if (length !== bytes.length) throw new HubError(400, 'The body is shorter than its Content-Length.')
  return bytes
}

function announcedLength(c: Context, maxBytes: number): number {
  const length = c.req.header('content-length') ?? ''
  if (!/^\d+$/.test(length)) throw new HubError(411, 'The sealed file must be sent with a Content-Length.')
  if (Number(length) > maxBytes) throw new HubError(413, `The sealed file is larger than ${maxBytes} bytes.`)
  return Number(length)
}
