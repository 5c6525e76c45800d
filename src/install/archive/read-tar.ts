import {
  ArchiveListing,
  type ExtractionPlan,
  type ExtractionRules,
  fileMode,
} from '../../core/archive/archive-policy.ts'
import { isRoot } from '../../core/archive/tar-member.ts'
import type { TarPart } from '../../core/archive/tar-reader.ts'
import type { TimeSlice } from '../files/time-slice.ts'
import { TarParts } from './tar-parts.ts'

/** A tar that can be read. */
export interface TarSource {
  readonly rules: ExtractionRules
  readonly slice: TimeSlice
  /** The tar's bytes from the beginning, each time it is called; a piece is valid until the next one is requested. */
  readonly unpack: () => AsyncIterable<Buffer>
}

/** A file of a tar that is being read. Its path is safe below any folder, and next to all members before it. */
export interface PassingFile {
  readonly path: string
  readonly mode: 0o644 | 0o755
  /** Bytes. */
  readonly size: number
  /** All of its data, where it has arrived at once; valid until the next file passes. */
  readonly bytes: Buffer | undefined
  /** Its data in parts, each of them valid until the next one is requested. */
  pieces(): AsyncGenerator<Buffer>
}

/**
 * Reads a whole tar, once, and plans its extraction. `onFile` gets each file as it passes, and takes as much of its
 * data as it wants: only the return vouches for the archive, and until then the next member may be the one that is
 * refused. After a file for which it throws it gets no more, but the tar is read to its end: a fault of the archive
 * comes before what is wrong with the use of it. Works in slices. Throws ArchiveError `invalid_archive`,
 * `unsafe_archive`, `archive_too_large` or `empty_artifact`, the signal's reason once the slice's signal is aborted,
 * and what `onFile` threw where nothing of this applies.
 */
export async function readTar(
  { rules, slice, unpack }: TarSource,
  onFile: (file: PassingFile) => Promise<void> | undefined,
): Promise<ExtractionPlan> {
  const listing = new ArchiveListing(rules)
  const parts = new TarParts(slice.pace(unpack()), rules)
  let failure: { readonly error: unknown } | null = null
  try {
    for (let part = await parts.wait(); part !== undefined; part = parts.take() ?? (await parts.wait())) {
      if (slice.isOver()) await slice.giveBack()
      if (!part.isFirst || isRoot(part.entry)) continue
      const path = listing.add(part.entry)
      if (part.entry.type !== 'file' || failure !== null) continue
      try {
        const writing = onFile(passing(path, part, parts))
        // Most files are written already; to wait for nothing would take as long as to hash a small one.
        if (writing !== undefined) await writing
      } catch (error) {
        failure = { error }
      }
    }
  } finally {
    await parts.close()
  }
  // Where it was the file's own data that could not be read, the parts have ended early.
  if (failure !== null && !parts.isComplete) throw failure.error
  const plan = await slice.run(listing.plan())
  if (failure !== null) throw failure.error
  return plan
}

function passing(path: string, first: TarPart, parts: TarParts): PassingFile {
  const { entry, data, isLast } = first
  const bytes = isLast ? data : undefined
  return { path, mode: fileMode(entry), size: entry.size, bytes, pieces: () => dataFrom(first, parts) }
}

async function* dataFrom(first: TarPart, parts: TarParts): AsyncGenerator<Buffer> {
  yield first.data
  for (let { isLast } = first; !isLast; ) {
    // A tar that ends in a file throws.
    const part = await parts.wait()
    if (part === undefined) return
    yield part.data
    isLast = part.isLast
  }
}
