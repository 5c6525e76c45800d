import { type ArchiveEntry, invalidArchive } from './archive-entry.ts'

/** The size of a header; all data is padded to a multiple of this size. */
export const TAR_BLOCK_BYTES = 512

/** The type of a header's member, or the kind of extra fields that the header announces for the next member. */
export type TarHeaderType = ArchiveEntry['type'] | 'sparse file' | 'pax' | 'pax global' | 'gnu name' | 'gnu link name'

/** A header block with a correct checksum. Its texts may share the memory of the block. */
export interface TarHeader {
  /**
   * As stored, after the prefix if there is one. May be cut off inside a character if an extension header has the whole
   * name.
   */
  readonly name: Buffer
  readonly linkName: Buffer
  readonly type: TarHeaderType
  /** The number of bytes of data that follow, without padding. */
  readonly size: number
  /** The owner's x bit. */
  readonly executable: boolean
}

const TYPES: ReadonlyMap<string, TarHeaderType> = new Map([
  ['\0', 'file'],
  ['0', 'file'],
  ['1', 'hard link'],
  ['2', 'symlink'],
  ['3', 'character device'],
  ['4', 'block device'],
  ['5', 'directory'],
  ['6', 'fifo'],
  ['S', 'sparse file'],
  ['x', 'pax'],
  ['g', 'pax global'],
  ['L', 'gnu name'],
  ['K', 'gnu link name'],
])

/** The position of a value in a header block. */
interface Field {
  readonly label: string
  readonly at: number
  readonly length: number
}

const FIELDS = {
  name: { label: 'name', at: 0, length: 100 },
  mode: { label: 'mode', at: 100, length: 8 },
  size: { label: 'size', at: 124, length: 12 },
  checksum: { label: 'checksum', at: 148, length: 8 },
  type: { label: 'type', at: 156, length: 1 },
  linkName: { label: 'link name', at: 157, length: 100 },
  magic: { label: 'magic', at: 257, length: 8 },
  prefix: { label: 'prefix', at: 345, length: 155 },
} as const satisfies Record<string, Field>

const OWNER_EXECUTE = 0o100
const SPACE = 0x20
const USTAR_MAGIC = 'ustar\x0000'
const GNU_MAGIC = 'ustar  \0'
const NO_MAGIC = '\0'.repeat(8)
const NO_TEXT = Buffer.alloc(0)
const OCTAL_FIELD = /^ *([0-7]+)[ \0]*$/

/**
 * Parses one header block of a tar: POSIX ustar, GNU, or the older form without a magic. Strict where tools differ, so
 * that all of them see the same members. Numbers must be octal digits, which excludes base-256 numbers and negative
 * sizes. A name has a prefix only if ustar's magic announces it. Throws ArchiveError `invalid_archive` for a wrong
 * checksum, another magic, an unannounced prefix, and a number in any other form.
 */
export function parseTarHeader(block: Buffer): TarHeader {
  if (readOctal(block, FIELDS.checksum) !== checksum(block)) throw invalidArchive('a tar header has a wrong checksum')
  const magic = latin1Of(block, FIELDS.magic)
  if (magic !== USTAR_MAGIC && magic !== GNU_MAGIC && magic !== NO_MAGIC) {
    throw invalidArchive('a tar header has an unknown format')
  }
  const prefix = readText(block, FIELDS.prefix)
  if (magic !== USTAR_MAGIC && prefix.length > 0) {
    throw invalidArchive('a tar header has a name prefix without the ustar magic, so some tools ignore the prefix')
  }
  return {
    name: prefixedName(prefix, readText(block, FIELDS.name)),
    linkName: readText(block, FIELDS.linkName),
    type: TYPES.get(latin1Of(block, FIELDS.type)) ?? 'unknown type',
    size: readOctal(block, FIELDS.size),
    executable: (readOctal(block, FIELDS.mode) & OWNER_EXECUTE) !== 0,
  }
}

/** Counts the bytes of the checksum field as spaces. */
function checksum(block: Buffer): number {
  const { at: start, length } = FIELDS.checksum
  let sum = length * SPACE
  for (let at = 0; at < TAR_BLOCK_BYTES; at++) {
    if (at < start || at >= start + length) sum += block[at] as number
  }
  return sum
}

function prefixedName(prefix: Buffer, name: Buffer): Buffer {
  return prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from('/'), name])
}

function readText(block: Buffer, { at, length }: Field): Buffer {
  // Most headers have neither a prefix nor a link name, and a Buffer costs more than this check.
  if (block[at] === 0) return NO_TEXT
  const end = block.indexOf(0, at)
  return block.subarray(at, end === -1 ? at + length : Math.min(end, at + length))
}

function readOctal(block: Buffer, field: Field): number {
  const digits = OCTAL_FIELD.exec(latin1Of(block, field))?.[1]
  if (digits === undefined) throw invalidArchive(`a tar header has a ${field.label} that is not an octal number`)
  return Number.parseInt(digits, 8)
}

function latin1Of(block: Buffer, { at, length }: Field): string {
  return block.toString('latin1', at, at + length)
}
