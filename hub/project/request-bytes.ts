import type { Context } from 'hono'
import { HubError } from '../errors.ts'

/**
 * Reads the raw body into one buffer of the announced length. Throws HubError 415 when the content type is not
 * application/octet-stream, 411 without a Content-Length, 413 when the body is longer than `maxBytes` or announced,
 * and 400 when it is shorter.
 */
export async function readBodyBytes(c: Context, maxBytes: number): Promise<Uint8Array> {
  if (c.req.header('content-type') !== 'application/octet-stream') {
    throw new HubError(415, 'The Content-Type of a sealed file must be application/octet-stream.')
  }
  const bytes = Buffer.allocUnsafe(announcedLength(c, maxBytes))
  let length = 0
  for await (const chunk of c.req.raw.body ?? []) {
    if (length + chunk.length > bytes.length)
      throw new HubError(413, 'The request body is longer than its Content-Length.')
    bytes.set(chunk, length)
    length += chunk.length
  }
  if (length !== bytes.length) throw new HubError(400, 'The request body is shorter than its Content-Length.')
  return bytes
}

function announcedLength(c: Context, maxBytes: number): number {
  const length = c.req.header('content-length') ?? ''
  if (!/^\d+$/.test(length)) throw new HubError(411, 'The upload of a sealed file needs a Content-Length.')
  if (Number(length) > maxBytes)
    throw new HubError(413, `The sealed file is larger than the limit of ${maxBytes} bytes.`)
  return Number(length)
}
