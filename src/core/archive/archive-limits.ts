import { ArchiveError } from '../errors.ts'
import { MAX_PATH_BYTES } from '../limits.ts'
import { type ArchiveEntry, unsafeEntry } from './archive-entry.ts'

/** Several times the average path length in real archives, even in those with the longest paths. */
const NAME_BYTES_PER_ENTRY = 256
/** Lets a few entries have the longest names. */
const SPARE_NAME_BYTES = 1024 * 1024

/** For PAX headers and long names in a tar; most members need none. */
const EXTENSION_BYTES_PER_ENTRY = 1024
const SPARE_EXTENSION_BYTES = 1024 * 1024

/** The operator's limits for an extracted archive: the inputs `max-extracted-bytes` and `max-entries`. */
export interface ExtractionLimits {
  readonly maxExtractedBytes: number
  readonly maxEntries: number
}

/**
 * Throws ArchiveError `archive_too_large` if an archive has more entries than `max-entries`. The count may include the
 * directories that paths imply.
 */
export function verifyEntryCount(count: number, limits: ExtractionLimits): void {
  if (count <= limits.maxEntries) return
  throw tooLarge(
    `The artifact has at least ${count} entries, more than max-entries allows (${limits.maxEntries})`,
    'max-entries',
  )
}

/** Throws ArchiveError `archive_too_large` if an archive's entries together declare more than `max-extracted-bytes`. */
export function verifyExtractedBytes(bytes: number, limits: ExtractionLimits): void {
  if (bytes <= limits.maxExtractedBytes) return
  throw tooLarge(
    `The artifact unpacks to at least ${bytes} bytes, more than max-extracted-bytes allows (${limits.maxExtractedBytes})`,
    'max-extracted-bytes',
  )
}

/**
 * Limits the names and symlink targets of a listing, because all of them are in memory at once. Throws ArchiveError
 * `archive_too_large` if together, in UTF-8, they exceed 1 MiB plus 256 bytes for each entry that `max-entries` allows.
 */
export function verifyNameBytes(bytes: number, { maxEntries }: ExtractionLimits): void {
  const most = maxEntries * NAME_BYTES_PER_ENTRY + SPARE_NAME_BYTES
  if (bytes <= most) return
  const found = `The artifact's names and symlink targets take more than the ${most} bytes`
  throw tooLarge(`${found} that max-entries (${maxEntries}) allows for them`, 'max-entries')
}

/**
 * Throws ArchiveError `archive_too_large` if the PAX headers and long names of a tar together exceed 1 MiB plus 1 KiB
 * for each entry that `max-entries` allows.
 */
export function verifyExtensionBytes(bytes: number, { maxEntries }: ExtractionLimits): void {
  const most = maxEntries * EXTENSION_BYTES_PER_ENTRY + SPARE_EXTENSION_BYTES
  if (bytes <= most) return
  const found = `The artifact has more than the ${most} bytes of PAX headers and long names`
  throw tooLarge(`${found} that max-entries (${maxEntries}) allows`, 'max-entries')
}

/** Throws ArchiveError `unsafe_archive` for a symlink with more than 4,096 bytes of data, which are its target. */
export function verifyTargetSize({ name, type, size }: ArchiveEntry): void {
  if (type !== 'symlink' || size <= MAX_PATH_BYTES) return
  throw unsafeEntry(name, `is a symlink with a target of more than ${MAX_PATH_BYTES} bytes`)
}

function tooLarge(found: string, input: 'max-entries' | 'max-extracted-bytes'): ArchiveError {
  return new ArchiveError(
    'archive_too_large',
    `${found}, so the artifact was refused: raise the input ${input} if the artifact is meant to be that large.`,
  )
}
