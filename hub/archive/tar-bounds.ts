import { HubError } from '../errors.ts'
import { MAX_ENTRIES, MAX_EXTRACTED_BYTES } from './archive-entry.ts'

const BLOCK_BYTES = 512
const TYPE_AT = 156
/** PAX headers, and GNU's long names and targets: a reader has each of them in memory as a whole. */
const EXTENSIONS = new Set([...'xgLK'].map(letter => letter.charCodeAt(0)))
const MAX_EXTENSION_BYTES = 64 * 1024
const MAX_TAR_BYTES = MAX_EXTRACTED_BYTES + 4 * BLOCK_BYTES * MAX_ENTRIES

/** Passes a tar on. Throws HubError 400 before a reader would have to keep much of it, or when it does not end. */
export async function* boundedTar(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let total = 0
  let content = 0
  let header = Buffer.alloc(0)
  for await (const chunk of chunks) {
    total += chunk.length
    if (total > MAX_TAR_BYTES)
      throw new HubError(
        400,
        `The archive unpacks to more than ${MAX_EXTRACTED_BYTES} bytes, the most that hosts take by default: leave something out.`,
      )
    for (let at = 0; at < chunk.length; ) {
      const skipped = Math.min(content, chunk.length - at)
      const taken = chunk.subarray(at + skipped, at + skipped + BLOCK_BYTES - header.length)
      content -= skipped
      at += skipped + taken.length
      header = Buffer.concat([header, taken])
      if (header.length < BLOCK_BYTES) continue
      content = contentOf(header)
      header = Buffer.alloc(0)
    }
    yield chunk
  }
}

/** How many bytes follow a header, in whole blocks. */
function contentOf(header: Buffer): number {
  const size = sizeOf(header)
  if (EXTENSIONS.has(header[TYPE_AT] ?? 0) && size > MAX_EXTENSION_BYTES)
    throw new HubError(
      400,
      `The archive has a PAX header or a long name of ${size} bytes: at most ${MAX_EXTENSION_BYTES} are allowed.`,
    )
  return Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES
}

/** In octal digits, or, for what hosts do not take anyway, in base 256. */
function sizeOf(header: Buffer): number {
  const field = header.subarray(124, 136)
  if (((field[0] ?? 0) & 0x80) !== 0) return Number(field.readBigUInt64BE(4))
  const digits = /^[ ]*([0-7]*)/.exec(field.toString('latin1'))?.[1]
  return digits ? Number.parseInt(digits, 8) : 0
}
