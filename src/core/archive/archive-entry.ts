import { ArchiveError } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'

export type ExtractableType = 'file' | 'directory' | 'symlink'

export type RefusedType = 'hard link' | 'character device' | 'block device' | 'fifo' | 'socket' | 'unknown type'

/** One line of an archive's listing: untrusted, only its encoding has been checked. */
export interface ArchiveEntry {
  /** Decoded; a directory's may end in one `/`. */
  readonly name: string
  readonly type: ExtractableType | RefusedType
  /** Bytes, unpacked. */
  readonly size: number
  /** Bytes in the archive; null where the archive packs all entries together. */
  readonly packedSize: number | null
  /** The owner's x bit. */
  readonly executable: boolean
  /** Where a symlink points; null for everything else. */
  readonly target: string | null
}

/** ArchiveError `unsafe_archive` that names the entry, cleaned, and the rule that it breaks. */
export function unsafeEntry(name: string, problem: string): ArchiveError {
  return new ArchiveError('unsafe_archive', entrySentence(name, problem))
}

/** ArchiveError `invalid_archive` that names the entry, cleaned, and what is damaged. */
export function invalidEntry(name: string, problem: string, cause?: unknown): ArchiveError {
  const options = cause === undefined ? {} : { cause }
  return new ArchiveError('invalid_archive', entrySentence(name, problem), options)
}

/** ArchiveError `invalid_archive` about the whole archive. */
export function invalidArchive(problem: string): ArchiveError {
  return new ArchiveError(
    'invalid_archive',
    `The archive is damaged or misleading (${problem}), so it was refused: the publisher must pack it again.`,
  )
}

function entrySentence(name: string, problem: string): string {
  return `The archive's entry "${cleanForeignText(name, 200)}" ${problem}, so the archive was refused: the publisher must pack it again.`
}
