import type { PlannedFile, PlannedFiles } from '../../../core/archive/planned-files.ts'
import { BatchInflater } from './inflate-together.ts'
import type { LocatedZip } from './open-zip.ts'
import { readSmallEntry } from './zip-entry-data.ts'

export interface ReadFile {
  readonly file: PlannedFile
  readonly bytes: Buffer
}

type Inflating = { readonly batch: PlannedFiles; readonly inflated: Promise<Buffer | undefined> }

/** The size of one batch: a smaller one would mean more turns of the event loop, a larger one only more memory. */
const MAX_BATCH_PACKED_BYTES = 256 * 1024
const MAX_BATCH_BYTES = 1024 * 1024
/** Keeps the collection of tiny files for one batch from taking a whole time slice. */
const MAX_BATCH_FILES = 1000
/**
 * The number of batches that are inflated ahead of the one in use. With only one ahead, the thread pool would sometimes
 * wait for this thread.
 */
const BATCHES_AHEAD = 2

/**
 * Yields small files that pass `canInflateTogether`, in the given order. Yields them in batches, because a promise for
 * each file would take time. Each file comes with all of its bytes, which are valid until the next file is requested.
 * While one batch is being used, the thread pool inflates the next batches. Vouches that each file has its declared
 * size and CRC, and that no packed bytes were left over. Throws ArchiveError `invalid_archive`.
 */
export async function* readInBatches(zip: LocatedZip, files: PlannedFiles): AsyncGenerator<Iterable<ReadFile>> {
  const inflater = new BatchInflater(zip)
  const inflating: Inflating[] = []
  for (const batch of cutIntoBatches(zip, files)) {
    const inflated = inflater.inflate(batch.entries())
    // An error is thrown when its batch is used. Until then, nothing else would catch it.
    inflated.catch(() => {})
    inflating.push({ batch, inflated })
    if (inflating.length > BATCHES_AHEAD) yield* readBatch(inflater, inflating.shift())
  }
  while (inflating.length > 0) yield* readBatch(inflater, inflating.shift())
}

/** Yields a batch. If the batch cannot be vouched for as a whole, splits it into halves, down to single files. */
async function* readBatch(inflater: BatchInflater, next: Inflating | undefined): AsyncGenerator<Iterable<ReadFile>> {
  if (next === undefined) return
  const { batch } = next
  const inflated = await next.inflated
  if (inflated !== undefined) yield cutOut(batch, inflated)
  else if (batch.length === 1) yield readAlone(inflater.zip, batch)
  else {
    const middle = batch.length >>> 1
    for (const half of [batch.slice(0, middle), batch.slice(middle, batch.length)])
      yield* readBatch(inflater, { batch: half, inflated: inflater.inflate(half.entries()) })
  }
}

function* readAlone({ window, entries }: LocatedZip, batch: PlannedFiles): Generator<ReadFile> {
  for (const file of batch) yield { file, bytes: readSmallEntry(window, entries.locatedAt(file.entry)) }
}

function* cutOut(batch: PlannedFiles, inflated: Buffer): Generator<ReadFile> {
  let at = 0
  for (const file of batch) {
    yield { file, bytes: inflated.subarray(at, at + file.size) }
    at += file.size
  }
  // zlib has closed the stream, so the memory is ours alone. Leaving the memory to the garbage collector would take
  // longer than the inflation did.
  ;(inflated.buffer as ArrayBuffer).transfer(0)
}

function* cutIntoBatches({ entries }: LocatedZip, files: PlannedFiles): Generator<PlannedFiles> {
  let start = 0
  let next = 0
  let packedBytes = 0
  let bytes = 0
  for (const entry of files.entries()) {
    const { size, packedSize } = entries.packingAt(entry)
    packedBytes += packedSize
    bytes += size
    const isFull = packedBytes > MAX_BATCH_PACKED_BYTES || bytes > MAX_BATCH_BYTES || next - start === MAX_BATCH_FILES
    if (next > start && isFull) {
      yield files.slice(start, next)
      start = next
      packedBytes = packedSize
      bytes = size
    }
    next += 1
  }
  if (next > start) yield files.slice(start, next)
}
