import { Readable } from 'node:stream'
import { type Extract, extract, type Header } from 'tar-stream'
import { invalidEntry } from '../core/archive-entry.ts'
import type { TarEntry } from '../core/tar-listing.ts'

/** Its types do not know the option that lets it read tars older than POSIX. */
type ReaderOptions = Parameters<typeof extract>[0] & { allowUnknownFormat: true }

/** A member that has been listed, with its data. */
export interface TarMember {
  readonly entry: TarEntry
  /** Exactly `entry.size` bytes; read it before the next member is asked for. */
  readonly data: AsyncIterable<Buffer>
}

/**
 * The members of a listed tar with their data, in their order. The reader is another one than the listing's: where the two do not
 * see the same member of the same size, it throws ArchiveError `invalid_archive` before any of its data is given out.
 */
export async function* readTarMembers(
  pieces: AsyncIterable<Buffer>,
  listing: readonly TarEntry[],
): AsyncGenerator<TarMember> {
  const source = Readable.from(pieces, { highWaterMark: 1 })
  const reader = source.pipe(createReader({ allowUnknownFormat: true }))
  source.once('error', error => reader.destroy(error))
  let read = 0
  try {
    for await (const member of reader) {
      const entry = listing[read++]
      verifySame(member.header, entry)
      yield { entry, data: member as AsyncIterable<unknown> as AsyncIterable<Buffer> }
      member.resume()
    }
  } finally {
    source.destroy()
    reader.destroy()
  }
  const missing = listing[read]
  if (missing !== undefined) throw invalidEntry(missing.name, 'is seen by one tar reader and not by another')
}

function createReader(options: ReaderOptions): Extract {
  return extract(options)
}

function verifySame({ name, size }: Header, entry: TarEntry | undefined): asserts entry is TarEntry {
  if (entry !== undefined && name === entry.storedName && size === entry.size) return
  throw invalidEntry(name, 'is not what another tar reader sees in its place')
}
