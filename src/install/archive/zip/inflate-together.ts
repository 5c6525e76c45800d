import { type Gunzip, gunzip } from 'node:zlib'
import { WINDOW_BYTES } from '../read-window.ts'
import type { LocatedZip } from './open-zip.ts'
import type { ZipPacking } from './zip-entries.ts'

const MEMBER_MAGIC = Buffer.from([0x1f, 0x8b, 0x08])
const MEMBER_HEADER = Buffer.concat([MEMBER_MAGIC, Buffer.alloc(7)])
const MEMBER_TRAILER_BYTES = 8
const MEMBER_EXTRA_BYTES = MEMBER_HEADER.length + MEMBER_TRAILER_BYTES
/** Spare room, so that zlib sees the end of the members without a second buffer. */
const SPARE_BYTES = 64
/** Room for most batches; a batch that needs more gets its own buffer. */
const MEMBERS_BYTES = 288 * 1024

/** Entries, packed as the members of a gzip file. */
interface Members {
  readonly members: Buffer
  readonly count: number
  /** The number of bytes that the members unpack to. */
  readonly size: number
}

/**
 * True if an entry can be inflated with others. An empty entry cannot: it adds nothing to the sizes that `inflate`
 * compares, so it could run on into the next entry unnoticed.
 */
export function canInflateTogether({ method, size }: ZipPacking): boolean {
  return method === 'deflated' && size > 0
}

/**
 * Inflates many small entries in one call, because the setup for one entry costs as much as inflating it. The thread
 * pool can inflate entries while this thread writes the ones before them. The packed bytes of each entry become one
 * member of a gzip file (RFC 1952), with a trailer that contains the CRC and the size from the directory.
 */
export class BatchInflater {
  readonly zip: LocatedZip
  /** Buffers of MEMBERS_BYTES that zlib no longer reads. */
  readonly #free: Buffer[] = []

  constructor(zip: LocatedZip) {
    this.zip = zip
  }

  /**
   * Returns all bytes of small entries that pass `canInflateTogether`, one entry after the other, in memory that they
   * share with nothing else. Returns undefined if it cannot vouch for the entries together. In that case, try again
   * with fewer of the entries, or read a single entry with `readSmallEntry`.
   * Vouches that each entry has its declared size and CRC, and that none of its packed bytes were left over. A member
   * can begin only at the magic, and only our headers contain the magic. Each member therefore ends immediately before
   * one of our headers, or at the end. Each member ends with a trailer that matches its content. Because the sizes add
   * up, each trailer is that of its own entry.
   * Throws ArchiveError `invalid_archive` if the file does not contain all packed bytes.
   */
  async inflate(entries: Iterable<number>): Promise<Buffer | undefined> {
    const buffer = this.#free.pop() ?? Buffer.allocUnsafeSlow(MEMBERS_BYTES)
    const { members, count, size } = this.#buildMembers(buffer, entries)
    if (countMagic(members) !== count) {
      this.#free.push(buffer)
      return undefined
    }
    const inflated = await gunzipWhole(members, size)
    if (inflated?.bytes.length !== size || inflated.used !== members.length) return undefined
    // Only now: after an error, the thread pool may still read the buffer.
    this.#free.push(buffer)
    return inflated.bytes
  }

  #buildMembers(buffer: Buffer, numbers: Iterable<number>): Members {
    const entries = Array.from(numbers, number => this.zip.entries.locatedAt(number))
    const length = entries.reduce((sum, { packedSize }) => sum + packedSize + MEMBER_EXTRA_BYTES, 0)
    const members = length > buffer.length ? Buffer.allocUnsafeSlow(length) : buffer.subarray(0, length)
    let at = 0
    for (const { dataOffset, packedSize, crc, size } of entries) {
      at += MEMBER_HEADER.copy(members, at)
      at += this.zip.window.look(dataOffset, packedSize, WINDOW_BYTES).copy(members, at)
      at = members.writeInt32LE(crc, at)
      at = members.writeUInt32LE(size, at)
    }
    return { members, count: entries.length, size: entries.reduce((sum, { size }) => sum + size, 0) }
  }
}

/** Resolves to undefined if the bytes are not valid gzip or unpack to more than `size` bytes. */
function gunzipWhole(members: Buffer, size: number): Promise<{ bytes: Buffer; used: number } | undefined> {
  // The memory of the answer is freed as a whole, so the chunk must be too large for the pool that small buffers share.
  const options = { info: true, maxOutputLength: size, chunkSize: Math.max(size + SPARE_BYTES, Buffer.poolSize) }
  return new Promise(resolve => {
    gunzip(members, options, (error, answer) => {
      if (error !== null) return resolve(undefined)
      // With `info`, the answer is not the Buffer that the type declares.
      const { buffer, engine } = answer as unknown as { buffer: Buffer; engine: Gunzip }
      return resolve({ bytes: buffer, used: engine.bytesWritten })
    })
  })
}

function countMagic(bytes: Buffer): number {
  let count = 0
  for (let at = bytes.indexOf(MEMBER_MAGIC); at !== -1; at = bytes.indexOf(MEMBER_MAGIC, at + 1)) count++
  return count
}
