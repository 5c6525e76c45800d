import { MAX_ENTRIES, MAX_EXTRACTED_BYTES, tooMuch } from './archive-entry.ts'

const BLOCK_BYTES = 512
/** Includes headers, padding and long names. */
const MAX_TAR_BYTES = MAX_EXTRACTED_BYTES + 4 * BLOCK_BYTES * MAX_ENTRIES

/** Passes on the bytes of a tar. Throws HubError 400 if it is longer than hosts unpack. */
export async function* boundedTar(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let total = 0
  for await (const chunk of chunks) {
    total += chunk.length
    if (total > MAX_TAR_BYTES) throw tooMuch(`unpacks to more than ${MAX_EXTRACTED_BYTES} bytes`)
    yield chunk
  }
}
