import { ArchiveError } from '../errors.ts'
import { MAX_COMPRESSION_RATIO, MAX_PATH_BYTES, RATIO_APPLIES_ABOVE_BYTES } from '../limits.ts'
import { type ArchiveEntry, unsafeEntry } from './archive-entry.ts'

/** How large the operator lets an archive become; the inputs `max-extracted-bytes` and `max-entries`. */
export interface ExtractionLimits {
  readonly maxExtractedBytes: number
  readonly maxEntries: number
}

/**
 * Checks the sizes that an archive's listing declares, before anything is unpacked. Throws ArchiveError
 * `archive_too_large` above a limit, `unsafe_archive` for a symlink's target of more than 4,096 bytes and for more
 * than 1,000 bytes out of one packed byte, of an entry above 1 MiB or of the whole.
 */
export function verifyDeclaredSizes(entries: readonly ArchiveEntry[], limits: ExtractionLimits): void {
  verifyEntryCount(entries.length, limits)
  let bytes = 0
  let packed: number | null = 0
  for (const entry of entries) {
    bytes += entry.size
    packed = packed === null || entry.packedSize === null ? null : packed + entry.packedSize
    verifyEntrySize(entry)
  }
  verifyExtractedBytes(bytes, limits)
  if (packed !== null) verifyRatio(bytes, packed)
}

/**
 * Throws ArchiveError `archive_too_large` when an archive lists more entries, or needs more directories, than
 * `max-entries`.
 */
export function verifyEntryCount(count: number, limits: ExtractionLimits): void {
  if (count <= limits.maxEntries) return
  throw new ArchiveError(
    'archive_too_large',
    `The archive has ${count} entries, more than max-entries allows (${limits.maxEntries}): nothing was installed; ` +
      'raise the input max-entries if the artifact is meant to be that large.',
  )
}

/** Throws ArchiveError `archive_too_large` when an archive's entries declare more than `max-extracted-bytes`. */
export function verifyExtractedBytes(bytes: number, limits: ExtractionLimits): void {
  if (bytes <= limits.maxExtractedBytes) return
  throw new ArchiveError(
    'archive_too_large',
    `The archive unpacks to ${bytes} bytes, more than max-extracted-bytes allows (${limits.maxExtractedBytes}): nothing was ` +
      'installed; raise the input max-extracted-bytes if the artifact is meant to be that large.',
  )
}

/**
 * Throws ArchiveError `unsafe_archive` when the archive as a whole, above 1 MiB, unpacks to more than 1,000 times its
 * packed bytes.
 */
export function verifyRatio(bytes: number, packed: number): void {
  if (!isBeyondRatio(bytes, packed)) return
  throw new ArchiveError(
    'unsafe_archive',
    `The archive unpacks from ${packed} to ${bytes} bytes, more than ${MAX_COMPRESSION_RATIO}:1: nothing was installed; ` +
      'it looks like a decompression bomb. Ask its publisher.',
  )
}

function verifyEntrySize(entry: ArchiveEntry): void {
  if (entry.type === 'symlink' && entry.size > MAX_PATH_BYTES) {
    throw unsafeEntry(entry.name, `is a symlink with a target of more than ${MAX_PATH_BYTES} bytes`)
  }
  if (entry.packedSize !== null && isBeyondRatio(entry.size, entry.packedSize)) {
    throw unsafeEntry(
      entry.name,
      `unpacks from ${entry.packedSize} to ${entry.size} bytes, more than ${MAX_COMPRESSION_RATIO}:1`,
    )
  }
}

function isBeyondRatio(bytes: number, packed: number): boolean {
  return bytes > RATIO_APPLIES_ABOVE_BYTES && bytes > packed * MAX_COMPRESSION_RATIO
}
