import { type ArchiveEntry, unsafeEntry } from '../../../core/archive/archive-entry.ts'

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

const DOS = 0
const UNIX = 3
/** The systems whose archives have meaningful Unix modes: Unix and OS X. */
const UNIX_SYSTEMS: ReadonlySet<number> = new Set([UNIX, 19])

/** The attributes of an entry, as the system that made it wrote them. */
export interface EntryAttributes {
  /** APPNOTE 4.4.2: 0 is DOS, 3 is Unix, 19 is OS X. */
  readonly system: number
  readonly external: number
}

/**
 * Returns the Unix type of an entry if a Unix system gave it one. Otherwise, an entry is a directory if its name ends
 * in `/`, and a file if not.
 * Throws ArchiveError `unsafe_archive` if the attributes mark the entry as a directory but its name does not end in
 * `/`. Also throws it if they mark the entry as a symlink, device or the like although neither Unix nor DOS made it:
 * some tools believe such attributes, and others extract a file.
 */
export function entryType(attributes: EntryAttributes, name: string): ArchiveEntry['type'] {
  verifySystem(attributes, name)
  const unixType = unixMode(attributes) & TYPE_MASK
  const isNamedDirectory = name.endsWith('/')
  const isMarkedDirectory =
    unixType === DIRECTORY_TYPE || (unixType === 0 && (attributes.external & DOS_DIRECTORY) !== 0)
  if (isMarkedDirectory && !isNamedDirectory) throw unsafeEntry(name, 'is marked as a directory but named as a file')
  if (unixType === 0) return isNamedDirectory ? 'directory' : 'file'
  return UNIX_TYPES.get(unixType) ?? 'unknown type'
}

/** Accepts any entry that Unix or DOS made. The Unix type of an entry from DOS is ignored, as unzip ignores it. */
function verifySystem({ system, external }: EntryAttributes, name: string): void {
  if (system === UNIX || system === DOS) return
  const type = UNIX_TYPES.get((external >>> 16) & TYPE_MASK) ?? 'file'
  if (type !== 'file' && type !== 'directory')
    throw unsafeEntry(
      name,
      `is marked as a ${type} by a system (number ${system} in the ZIP format) whose attributes tools interpret differently`,
    )
}

export function isOwnerExecutable(attributes: EntryAttributes): boolean {
  return (unixMode(attributes) & OWNER_EXECUTE) !== 0
}

/** Returns 0 if neither Unix nor OS X wrote the attributes. */
function unixMode({ system, external }: EntryAttributes): number {
  return UNIX_SYSTEMS.has(system) ? external >>> 16 : 0
}
