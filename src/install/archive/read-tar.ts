import {
  ArchiveListing,
  type ExtractionPlan,
  type ExtractionRules,
  fileMode,
} from '../../core/archive/archive-policy.ts'
import { isRoot, type TarEntry } from '../../core/archive/tar-member.ts'
import { type TarPart, TarReader } from '../../core/archive/tar-reader.ts'
import type { TimeSlice } from '../files/time-slice.ts'

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
  /** Its data in parts, each of them valid until the next one is requested. */
  pieces(): AsyncGenerator<Buffer>
  /** All of its data, valid until the next file passes. */
  whole(): Promise<Buffer>
}

/**
 * Reads a whole tar, once, and plans its extraction. `onFile` gets each file as it passes, and takes as much of its data
 * as it wants: only the return vouches for the archive, and until then the next member may be the one that is refused.
 * After a file for which it throws it gets no other, but the tar is read to its end: what is wrong with the archive comes
 * before what is wrong with the use of it. Works in slices.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`, the signal's reason
 * once the slice's signal is aborted, and what `onFile` threw where nothing of this applies.
 */
export async function readTar(
  { rules, slice, unpack }: TarSource,
  onFile: (file: PassingFile) => Promise<void>,
): Promise<ExtractionPlan<TarEntry>> {
  const listing = new ArchiveListing<TarEntry>(rules)
  const tar = new TarReader(rules)
  const parts = partsOf(tar, slice.pace(unpack()))
  let failure: { readonly error: unknown } | null = null
  for await (const part of parts) {
    if (slice.isOver()) await slice.giveBack()
    if (!part.isFirst || isRoot(part.entry)) continue
    const path = listing.add(part.entry)
    if (part.entry.type !== 'file' || failure !== null) continue
    try {
      await onFile(passing(path, part, parts))
    } catch (error) {
      failure = { error }
    }
  }
  // Where it was the file's own data that could not be read, the parts have ended early.
  if (failure !== null && !tar.isComplete) throw failure.error
  const plan = await slice.run(listing.plan())
  if (failure !== null) throw failure.error
  return plan
}

async function* partsOf(tar: TarReader, pieces: AsyncIterable<Buffer>): AsyncGenerator<TarPart> {
  for await (const piece of pieces) yield* tar.read(piece)
  tar.finish()
}

function passing(path: string, first: TarPart, parts: AsyncGenerator<TarPart>): PassingFile {
  const { entry, data, isLast } = first
  const pieces = (): AsyncGenerator<Buffer> => dataFrom(first, parts)
  return {
    path,
    mode: fileMode(entry),
    size: entry.size,
    pieces,
    whole: async () => (isLast ? data : await collect(pieces(), entry.size)),
  }
}

async function* dataFrom(first: TarPart, parts: AsyncGenerator<TarPart>): AsyncGenerator<Buffer> {
  yield first.data
  for (let { isLast } = first; !isLast; ) {
    // Not with for-await, which would end the tar with the file. A tar that ends in a file throws.
    const { value, done } = await parts.next()
    if (done === true) return
    yield value.data
    isLast = value.isLast
  }
}

async function collect(pieces: AsyncIterable<Buffer>, size: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(size)
  let filled = 0
  for await (const piece of pieces) filled += piece.copy(bytes, filled)
  return bytes
}
