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

/** A tar, and the rules that it must respect. */
export interface TarSource {
  readonly rules: ExtractionRules
  readonly slice: TimeSlice
  /** Returns the tar's bytes, from the beginning on each call. A piece is valid until the next one is requested. */
  readonly unpack: () => AsyncIterable<Buffer>
}

/**
 * A file of a tar that is being read. The path is safe below any folder and does not conflict with the members before
 * it.
 */
export interface PassingFile {
  readonly path: string
  readonly mode: 0o644 | 0o755
  /** Bytes. */
  readonly size: number
  /** All of the file's data, if it arrived in one piece; valid until the next file passes. */
  readonly bytes: Buffer | undefined
  /** Yields the file's data in parts. A part is valid until the next one is requested. */
  pieces(): AsyncGenerator<Buffer>
}

/**
 * Reads a whole tar once and plans its extraction. Passes each file to `onFile`, which may read as much of the file's
 * data as it wants. The archive may still be refused until this function returns. After `onFile` throws, it gets no
 * more files. The tar is still read to its end, because a fault in the archive takes precedence over an error from
 * `onFile`. Works in slices. Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or
 * `empty_artifact`, the signal's reason once the slice's signal is aborted, and otherwise the error from `onFile`.
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
        // Most files have been written by now, and a needless wait would take as long as hashing a small file.
        if (writing !== undefined) await writing
      } catch (error) {
        failure = { error }
      }
    }
  } finally {
    await parts.close()
  }
  // If `onFile` failed because the file's data could not be read, the parts have ended early.
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
    // If the tar ends inside a file, `wait` throws.
    const part = await parts.wait()
    if (part === undefined) return
    yield part.data
    isLast = part.isLast
  }
}
