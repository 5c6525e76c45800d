import { ArchiveError } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'

export type ExtractableType = 'file' | 'directory' | 'symlink'

export type RefusedType = 'hard link' | 'character device' | 'block device' | 'fifo' | 'socket' | 'unknown type'

/** One entry of an archive's listing. Untrusted: only its encoding has been checked. */
export interface ArchiveEntry {
  /** Decoded; a directory's name may end in one `/`. */
  readonly name: string
  readonly type: ExtractableType | RefusedType
  /** The unpacked size in bytes. */
  readonly size: number
  /** The size in the archive in bytes; null if entries are not packed one by one, as in a tar or a git repository. */
  readonly packedSize: number | null
  /** The owner's x bit. */
  readonly executable: boolean
  /** The target of a symlink; null for any other entry, and for a symlink whose target has not been read yet. */
  readonly target: string | null
}

/** Returns an ArchiveError `unsafe_archive` that names the entry, cleaned, and the rule that it breaks. */
export function unsafeEntry(name: string, problem: string): ArchiveError {
  const remedy = 'the publisher must correct the entry and publish the artifact again'
  return new ArchiveError('unsafe_archive', entrySentence(name, problem, remedy))
}

/** Returns an ArchiveError `invalid_archive` that names the entry, cleaned, and its damage. */
export function invalidEntry(name: string, problem: string, cause?: unknown): ArchiveError {
  const options = cause === undefined ? {} : { cause }
  return new ArchiveError('invalid_archive', entrySentence(name, problem, 'the publisher must pack it again'), options)
}

/** Returns an ArchiveError `invalid_archive` about the whole archive. */
export function invalidArchive(problem: string): ArchiveError {
  return new ArchiveError(
    'invalid_archive',
    `The archive is damaged or misleading (${problem}), so it was refused: the publisher must pack it again.`,
  )
}

function entrySentence(name: string, problem: string, remedy: string): string {
  return `The artifact's entry "${cleanForeignText(name, 200)}" ${problem}, so the artifact was refused: ${remedy}.`
}
