import { type ArchiveEntry, invalidArchive } from './archive-entry.ts'

/** Bytes of a header, and what all data is padded to. */
export const TAR_BLOCK_BYTES = 512

/** What the data after a header is: a member's, or words about the next member. */
export type TarHeaderType = ArchiveEntry['type'] | 'sparse file' | 'pax' | 'pax global' | 'gnu name' | 'gnu link name'

/** One header block, its checksum right. */
export interface TarHeader {
  /** As stored: it may be cut in the middle of a character where a longer one is told beside it. */
  readonly name: Buffer
  readonly linkName: Buffer
  readonly type: TarHeaderType
  /** Bytes of data that follow, padding aside. */
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

const OWNER_EXECUTE = 0o100
const USTAR_MAGIC = 'ustar\x0000'
const GNU_MAGIC = 'ustar  \0'
const NO_MAGIC = '\0'.repeat(8)
const OCTAL_FIELD = /^ *([0-7]+)[ \0]*$/

/**
 * One header block of a tar: POSIX ustar, GNU, or the older form without a magic. Strict where tools differ, so that all see the
 * same members: numbers are octal digits and nothing else, so no base-256 and no negative sizes.
 * Throws ArchiveError `invalid_archive` for a wrong checksum, another magic and other numbers.
 */
export function parseTarHeader(block: Buffer): TarHeader {
  if (readOctal(block, 148, 8, 'checksum') !== checksum(block))
    throw invalidArchive('a tar header has a wrong checksum')
  const magic = block.toString('latin1', 257, 265)
  if (magic !== USTAR_MAGIC && magic !== GNU_MAGIC && magic !== NO_MAGIC) {
    throw invalidArchive('a tar header is of an unknown format')
  }
  return {
    name: magic === USTAR_MAGIC ? prefixedName(block) : readText(block, 0, 100),
    linkName: readText(block, 157, 100),
    type: TYPES.get(block.toString('latin1', 156, 157)) ?? 'unknown type',
    size: readOctal(block, 124, 12, 'size'),
    executable: (readOctal(block, 100, 8, 'mode') & OWNER_EXECUTE) !== 0,
  }
}

/** With the field itself counted as spaces. */
function checksum(block: Buffer): number {
  let sum = 8 * 0x20
  for (let at = 0; at < TAR_BLOCK_BYTES; at++) {
    if (at < 148 || at >= 156) sum += block[at] as number
  }
  return sum
}

function prefixedName(block: Buffer): Buffer {
  const prefix = readText(block, 345, 155)
  const name = readText(block, 0, 100)
  return prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from('/'), name])
}

/** A copy, because the block is reused. */
function readText(block: Buffer, at: number, length: number): Buffer {
  const field = block.subarray(at, at + length)
  const end = field.indexOf(0)
  return Buffer.from(end === -1 ? field : field.subarray(0, end))
}

function readOctal(block: Buffer, at: number, length: number, field: string): number {
  const digits = OCTAL_FIELD.exec(block.toString('latin1', at, at + length))?.[1]
  if (digits === undefined) throw invalidArchive(`a tar header has a ${field} that is not an octal number`)
  return Number.parseInt(digits, 8)
}
