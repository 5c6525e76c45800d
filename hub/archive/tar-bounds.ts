import { MAX_ENTRIES, MAX_EXTRACTED_BYTES, tooMuch } from './archive-entry.ts'

/** The bytes that hosts allow for an entry's headers, padding and long names, and for the zeros at the end of a tar. */
const BYTES_PER_ENTRY = 4096
const TRAILER_BYTES = 1024 * 1024
const MAX_TAR_BYTES = MAX_EXTRACTED_BYTES + BYTES_PER_ENTRY * MAX_ENTRIES + TRAILER_BYTES

/** Passes on the bytes of a tar. Throws HubError 400 if the tar is longer than any that hosts unpack by default. */
export async function* boundedTar(
  chunks: AsyncIterable<Buffer>,
  { maxBytes = MAX_TAR_BYTES } = {},
): AsyncGenerator<Buffer> {
  let total = 0
  for await (const chunk of chunks) {
    total += chunk.length
    if (total > maxBytes) throw tooMuch(`has a tar of more than ${maxBytes} bytes`)
    yield chunk
  }
}
