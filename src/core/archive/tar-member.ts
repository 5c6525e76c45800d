import { type ArchiveEntry, type ExtractableType, invalidArchive, invalidEntry, unsafeEntry } from './archive-entry.ts'
import { requireExtractable } from './archive-policy.ts'
import { decodeEntryName, decodeTarget } from './entry-names.ts'
import type { TarHeader } from './tar-header.ts'
import { type PaxFields, parsePaxFields } from './tar-pax.ts'

/** A member of a tar as an entry of its listing. Untrusted, like every entry. */
export interface TarEntry extends ArchiveEntry {
  /** The name as the archive stores it, whereas `name` has no leading `./`. */
  readonly storedName: string
}

/** The values that extension headers announced for the next member. */
export interface Announced {
  readonly pax?: PaxFields
  readonly name?: string
  /** Not decoded yet. */
  readonly linkName?: Buffer
}

/** The largest number with eleven octal digits. */
const MAX_USTAR_SIZE = 0o77777777777

/** True if a member is the archive's root, `./` or `.`, which an extraction does not create. */
export function isRoot({ storedName, type }: TarEntry): boolean {
  return type === 'directory' && (storedName === './' || storedName === '.')
}

/** True if a header announces values for a member that follows. */
export function isExtension({ type }: TarHeader): boolean {
  return type === 'pax' || type === 'pax global' || type === 'gnu name' || type === 'gnu link name'
}

/**
 * Returns the announced values together with those of one more extension header of the same member. Throws ArchiveError
 * `invalid_archive` if the header is malformed, repeats an earlier one, or mixes PAX and GNU headers. Throws
 * `unsafe_archive` if a path or name in the header is not UTF-8. `toEntry` verifies targets.
 */
export function announce(announced: Announced, { type }: TarHeader, body: Buffer): Announced {
  const key = type === 'pax' ? 'pax' : type === 'gnu name' ? 'name' : 'linkName'
  verifyAnnouncedOnce(announced, key)
  switch (key) {
    case 'pax':
      return { ...announced, pax: parsePaxFields(body) }
    case 'name':
      return { ...announced, name: decodeEntryName(longName(body), 'utf-8') }
    case 'linkName':
      return { ...announced, linkName: Buffer.from(longName(body)) }
  }
}

/**
 * Builds a member from its header and the values that were announced for it. Throws ArchiveError `unsafe_archive` for a
 * type that is not extracted (such as a sparse file), a file with a directory's name, a name or target that is not
 * UTF-8, and data in anything but a file. Throws `invalid_archive` for two different sizes.
 */
export function toEntry(header: TarHeader, { pax = {}, name, linkName }: Announced): TarEntry {
  const storedName = pax.path ?? name ?? decodeEntryName(header.name, 'utf-8')
  if (pax.specialKey !== undefined) throw unsafeEntry(storedName, 'has a PAX key of a sparse, split or special file')
  const type = memberType(header.type, storedName)
  const size = pax.size ?? header.size
  // This check includes the root, which is never listed: some tools skip the data of a directory, and others read it as
  // more members.
  if (type !== 'file' && size > 0) throw unsafeEntry(storedName, `is a ${type} that contains data`)
  if (!agrees(header.size, size))
    throw invalidEntry(storedName, 'has one size in its PAX header and another size in its tar header')
  // An announced target is verified for every type, because another tool may follow it.
  const target = pax.linkpath ?? linkName
  const announced = target === undefined ? undefined : decodeTarget(target, storedName)
  return {
    name: storedName.startsWith('./') ? storedName.slice(2) : storedName,
    storedName,
    type,
    size,
    packedSize: null,
    executable: header.executable,
    target: type === 'symlink' ? (announced ?? decodeTarget(header.linkName, storedName)) : null,
  }
}

/**
 * Tools differ on which of two announcements wins. Each value may therefore be announced only once, and by either PAX
 * or GNU headers.
 */
function verifyAnnouncedOnce(announced: Announced, key: keyof Announced): void {
  const isMixed = key === 'pax' ? Object.keys(announced).length > 0 : announced.pax !== undefined
  if (isMixed || announced[key] !== undefined)
    throw invalidArchive('a tar member has a repeated extension header, or both PAX and GNU headers')
}

/** Returns the text before the first NUL. */
function longName(body: Buffer): Buffer {
  const end = body.indexOf(0)
  const name = end === -1 ? body : body.subarray(0, end)
  if (body.subarray(name.length).some(byte => byte !== 0))
    throw invalidArchive('a long tar name contains other data after its first NUL')
  return name
}

/** If a PAX size does not fit into the header's own field, that field is zero or full. */
function agrees(own: number, size: number): boolean {
  return own === size || (size > MAX_USTAR_SIZE && (own === 0 || own === MAX_USTAR_SIZE))
}

function memberType(type: TarHeader['type'], name: string): ExtractableType {
  if (type === 'file' && name.endsWith('/'))
    throw unsafeEntry(name, "is a file with a directory's name, for which some tools create a directory")
  return requireExtractable(name, type)
}
