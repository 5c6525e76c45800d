import { isUtf8 } from 'node:buffer'
import { buffer } from 'node:stream/consumers'
import { crc32 } from 'node:zlib'
import type { Entry, ZipFile } from 'yauzl'
import yauzl from 'yauzl'
import { HubError } from '../errors.ts'
import {
  type ArchiveEntry,
  EntryList,
  MAX_ENTRIES,
  MAX_EXTRACTED_BYTES,
  MAX_PATH_BYTES,
  tooMuch,
  unsafe,
} from './entries.ts'

const UTF8_NAME = 0x0800
/** An extra field of Info-ZIP. */
const UNICODE_PATH = 0x7075
const MADE_BY_UNIX = new Set([3, 19])
const TYPE_BITS = 0o170000
const DOS_DIRECTORY = 0x10
const TYPES: ReadonlyMap<number, ArchiveEntry['type']> = new Map([
  [0o100000, 'file'],
  [0o040000, 'directory'],
  [0o120000, 'symlink'],
])

/** The entries of a ZIP, and access to the bytes of its files. */
export interface OpenZip {
  readonly entries: readonly ArchiveEntry[]
  /** The number of bytes of the entry with this name, which openZip has verified. */
  readonly sizeOf: (name: string) => number
  /** Returns the bytes of that entry, all in memory. */
  readonly read: (name: string) => Promise<Buffer>
}

/**
 * Reads all of a ZIP, to make sure that nothing in it is damaged. Throws HubError 400 if the bytes are not a ZIP, if
 * the ZIP contains more than hosts unpack, or if an entry is damaged or encrypted. Also throws it if a name or symlink
 * target is not UTF-8, or if a name outside ASCII is not marked as UTF-8.
 */
export async function openZip(bytes: Buffer): Promise<OpenZip> {
  const zip = await yauzl.fromBufferPromise(bytes, { lazyEntries: true, decodeStrings: false }).catch(notAZip)
  const found = new Map<string, Entry>()
  const list = new EntryList()
  try {
    if (zip.entryCount > MAX_ENTRIES) throw tooMuch(`has more than ${MAX_ENTRIES} entries`)
    let total = 0
    for await (const entry of zip.eachEntry()) {
      const name = nameOf(entry)
      total += entry.uncompressedSize
      if (total > MAX_EXTRACTED_BYTES) throw tooMuch(`unpacks to more than ${MAX_EXTRACTED_BYTES} bytes`)
      list.add(await readEntry(zip, entry, name))
      found.set(name, entry)
    }
  } catch (error) {
    throw error instanceof HubError ? error : notAZip(error as Error)
  }
  return {
    entries: list.entries,
    sizeOf: name => (found.get(name) as Entry).uncompressedSize,
    read: async name => await readBytes(zip, found.get(name) as Entry),
  }
}

async function readEntry(zip: ZipFile, entry: Entry, name: string): Promise<ArchiveEntry> {
  if (entry.isEncrypted())
    throw new HubError(
      400,
      `${JSON.stringify(name)} is encrypted in the archive: pack the archive again without a password.`,
    )
  const type = typeOf(entry, name)
  if (type === 'symlink' && entry.uncompressedSize <= MAX_PATH_BYTES)
    return { name, type, target: targetOf(name, await readBytes(zip, entry)) }
  for await (const _ of checked(zip, entry));
  return { name, type }
}

function targetOf(name: string, bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString('utf8')
  throw unsafe(name, 'is a symlink to a name that is not UTF-8')
}

async function readBytes(zip: ZipFile, entry: Entry): Promise<Buffer> {
  return await buffer(checked(zip, entry))
}

async function* checked(zip: ZipFile, entry: Entry): AsyncGenerator<Buffer> {
  let sum = 0
  for await (const chunk of await zip.openReadStreamPromise(entry)) {
    sum = crc32(chunk as Buffer, sum)
    yield chunk as Buffer
  }
  if (sum !== entry.crc32) throw damaged(nameOf(entry))
}

function nameOf({ fileName, generalPurposeBitFlag, extraFields }: Entry): string {
  const bytes = fileName as unknown as Buffer
  const isAscii = bytes.every(byte => byte < 0x80)
  if (isAscii || ((generalPurposeBitFlag & UTF8_NAME) !== 0 && isUtf8(bytes))) return bytes.toString('utf8')
  if (extraFields.some(({ id }) => id === UNICODE_PATH))
    return yauzl.getFileNameLowLevel(generalPurposeBitFlag, bytes, extraFields, true)
  throw new HubError(
    400,
    `The name ${JSON.stringify(bytes.toString('latin1'))} is not UTF-8, or is not marked as UTF-8: pack the archive with LC_ALL=C.UTF-8 zip.`,
  )
}

/** The permissions of other systems are not Unix modes. */
function typeOf({ versionMadeBy, externalFileAttributes }: Entry, name: string): ArchiveEntry['type'] {
  const mode = MADE_BY_UNIX.has(versionMadeBy >>> 8) ? externalFileAttributes >>> 16 : 0
  if ((mode & TYPE_BITS) !== 0) return TYPES.get(mode & TYPE_BITS) ?? 'other'
  return name.endsWith('/') || (externalFileAttributes & DOS_DIRECTORY) !== 0 ? 'directory' : 'file'
}

function notAZip(error: Error): never {
  const reason = error.message.replace(/[.\s]+$/, '')
  throw new HubError(400, `The archive cannot be read as a ZIP file (${reason}): pack it again.`)
}

function damaged(name: string): HubError {
  return new HubError(
    400,
    `The archive is damaged at ${JSON.stringify(name)}, whose CRC does not match: pack it again.`,
  )
}
