import { type ArchiveEntry, unsafeEntry } from '../../core/archive/archive-entry.ts'

const TYPE_MASK = 0o170000
const DIRECTORY_TYPE = 0o040000
const OWNER_EXECUTE = 0o100
const DOS_DIRECTORY = 0x10

const UNIX_TYPES: ReadonlyMap<number, ArchiveEntry['type']> = new Map([
  [0o010000, 'fifo'],
  [0o020000, 'character device'],
  [DIRECTORY_TYPE, 'directory'],
  [0o060000, 'block device'],
  [0o100000, 'file'],
  [0o120000, 'symlink'],
  [0o140000, 'socket'],
])

/**
 * What an entry is: its Unix type where there is one, on whatever system it was made, else a directory by its final
 * `/`.
 * Throws ArchiveError `unsafe_archive` when the attributes call it a directory but its name does not.
 */
export function entryType(externalAttributes: number, name: string): ArchiveEntry['type'] {
  const unixType = unixMode(externalAttributes) & TYPE_MASK
  const isNamedDirectory = name.endsWith('/')
  const isMarkedDirectory =
    unixType === DIRECTORY_TYPE || (unixType === 0 && (externalAttributes & DOS_DIRECTORY) !== 0)
  if (isMarkedDirectory && !isNamedDirectory) throw unsafeEntry(name, 'is marked as a directory but named as a file')
  if (unixType === 0) return isNamedDirectory ? 'directory' : 'file'
  return UNIX_TYPES.get(unixType) ?? 'unknown type'
}

export function isOwnerExecutable(externalAttributes: number): boolean {
  return (unixMode(externalAttributes) & OWNER_EXECUTE) !== 0
}

function unixMode(externalAttributes: number): number {
  return externalAttributes >>> 16
}
