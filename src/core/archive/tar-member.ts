import { type ArchiveEntry, type ExtractableType, invalidArchive, invalidEntry, unsafeEntry } from './archive-entry.ts'
import { requireExtractable } from './archive-policy.ts'
import { decodeEntryText } from './entry-names.ts'
import type { TarHeader } from './tar-header.ts'
import { type PaxFields, parsePaxFields } from './tar-pax.ts'

/** A member of a tar. */
export interface TarEntry extends ArchiveEntry {
  /** The name as the archive stores it: `name` is without a leading `./`. */
  readonly storedName: string
}

/** What extension headers announced of the next member. */
export interface Announced {
  readonly pax?: PaxFields
  readonly name?: string
  readonly linkName?: string
}

/** Of eleven octal digits. */
const MAX_USTAR_SIZE = 0o77777777777

/** Whether a member is the archive's root, `./` or `.`, which an extraction does not create. */
export function isRoot({ storedName, type }: TarEntry): boolean {
  return type === 'directory' && (storedName === './' || storedName === '.')
}

/** Whether a header announces something of a member that follows. */
export function isExtension({ type }: TarHeader): boolean {
  return type === 'pax' || type === 'pax global' || type === 'gnu name' || type === 'gnu link name'
}

/**
 * The same with what an extension header of one member announces. Throws ArchiveError `invalid_archive` for what was
 * announced before.
 */
export function announce(announced: Announced, { type }: TarHeader, body: Buffer): Announced {
  const key = type === 'pax' ? 'pax' : type === 'gnu name' ? 'name' : 'linkName'
  verifyAnnouncedOnce(announced, key)
  return { ...announced, [key]: key === 'pax' ? parsePaxFields(body) : decodeLongName(body) }
}

/**
 * The member of a header, with what was announced of it. Throws ArchiveError `unsafe_archive` for a type that is not
 * extracted, a name that is not UTF-8 and data that is not a file's, `invalid_archive` for two sizes.
 */
export function toEntry(header: TarHeader, { pax = {}, name, linkName }: Announced): TarEntry {
  const storedName = pax.path ?? name ?? decodeEntryText(header.name, 'utf-8')
  if (pax.specialKey !== undefined) throw unsafeEntry(storedName, 'is a sparse file or a part of one')
  const type = memberType(header.type, storedName)
  const size = pax.size ?? header.size
  // The root too, which is never listed: some tools skip the data of such a member, others read it as more members.
  if (type !== 'file' && size > 0) throw unsafeEntry(storedName, `is a ${type} that contains data`)
  if (!agrees(header.size, size)) throw invalidEntry(storedName, 'has another size in its PAX header than in its own')
  return {
    name: storedName.startsWith('./') ? storedName.slice(2) : storedName,
    storedName,
    type,
    size,
    packedSize: null,
    executable: header.executable,
    target: type === 'symlink' ? (pax.linkpath ?? linkName ?? decodeEntryText(header.linkName, 'utf-8')) : null,
  }
}

/** Tools differ on which of two announcements wins, so a member has each once, and either PAX or GNU ones. */
function verifyAnnouncedOnce(announced: Announced, key: keyof Announced): void {
  const isMixed = key === 'pax' ? Object.keys(announced).length > 0 : announced.pax !== undefined
  if (isMixed || announced[key] !== undefined) throw invalidArchive('a tar member is announced twice')
}

function decodeLongName(body: Buffer): string {
  const end = body.indexOf(0)
  const name = end === -1 ? body : body.subarray(0, end)
  if (body.subarray(name.length).some(byte => byte !== 0))
    throw invalidArchive('a long tar name continues after its end')
  return decodeEntryText(name, 'utf-8')
}

/** A header's own field is at zero or full where a PAX size does not fit into it. */
function agrees(own: number, size: number): boolean {
  return own === size || (size > MAX_USTAR_SIZE && (own === 0 || own === MAX_USTAR_SIZE))
}

function memberType(type: TarHeader['type'], name: string): ExtractableType {
  if (type === 'file' && name.endsWith('/'))
    throw unsafeEntry(
      name,
      "is a file with a directory's name, which some tools create as a directory and others as a file",
    )
  return requireExtractable(name, type)
}
