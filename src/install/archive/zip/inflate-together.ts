import { type Gunzip, gunzip } from 'node:zlib'
import { WINDOW_BYTES } from '../read-window.ts'
import type { LocatedZip } from './open-zip.ts'
import type { ZipPacking } from './zip-entries.ts'

const MEMBER_MAGIC = Buffer.from([0x1f, 0x8b, 0x08])
const MEMBER_HEADER = Buffer.concat([MEMBER_MAGIC, Buffer.alloc(7)])
const MEMBER_TRAILER_BYTES = 8
const MEMBER_EXTRA_BYTES = MEMBER_HEADER.length + MEMBER_TRAILER_BYTES
/** Spare room, so that zlib sees the end without a second buffer. */
const SPARE_BYTES = 64
/** Room for most batches; a batch that needs more gets a buffer of its own. */
const MEMBERS_BYTES = 288 * 1024

/** Entries, packed as the members of a gzip file. */
interface Members {
  readonly members: Buffer
  readonly count: number
  /** The bytes that they unpack to. */
  readonly size: number
}

/** Whether an entry can be one of many: without any bytes of its own it could hide behind the next. */
export function canInflateTogether({ method, size }: ZipPacking): boolean {
  return method === 'deflated' && size > 0
}

/**
 * Inflates many small entries by one call. To inflate one costs as much for the setup as for the inflating, and the
 * thread pool works on many while this thread writes those before: their packed bytes, one behind the other, become
 * the members of a gzip file (RFC 1952), each with the CRC and the size that the directory gives as its trailer.
 */
export class BatchInflater {
  readonly zip: LocatedZip
  /** Buffers of MEMBERS_BYTES that zlib has used up. */
  readonly #free: Buffer[] = []

  constructor(zip: LocatedZip) {
    this.zip = zip
  }

  /**
   * All bytes of small entries that pass `canInflateTogether`, one behind the other, in memory of their own; or
   * undefined where they cannot be vouched for together, which says nothing about any single one: try fewer, and
   * `readSmallEntry` for one. Vouches that each entry has its declared size and CRC, and that none of its packed bytes was
   * left over: a member can begin only where the magic is, so each must end before a header of ours; it ends with a
   * trailer that fits it; and as the sizes add up, with its own.
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
    // Only now: after an error the thread pool may still read it.
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

/** Undefined when the bytes are not gzip or unpack to more than `size` bytes. */
function gunzipWhole(members: Buffer, size: number): Promise<{ bytes: Buffer; used: number } | undefined> {
  // Never from the pool that small buffers share: the answer's memory is freed as a whole.
  const options = { info: true, maxOutputLength: size, chunkSize: Math.max(size + SPARE_BYTES, Buffer.poolSize) }
  return new Promise(resolve => {
    gunzip(members, options, (error, answer) => {
      if (error !== null) return resolve(undefined)
      // With `info` the answer is not the Buffer that the declared type says.
      const { buffer, engine } = answer as unknown as { buffer: Buffer; engine: Gunzip }
      resolve({ bytes: buffer, used: engine.bytesWritten })
    })
  })
}

function countMagic(bytes: Buffer): number {
  let count = 0
  for (let at = bytes.indexOf(MEMBER_MAGIC); at !== -1; at = bytes.indexOf(MEMBER_MAGIC, at + 1)) count++
  return count
}
