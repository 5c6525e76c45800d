import { type Gunzip, gunzip } from 'node:zlib'
import { freeBuffer } from '../../core/archive/free-buffer.ts'
import { type ReadWindow, WINDOW_BYTES } from './read-window.ts'
import type { LocatedZipEntry } from './zip-local-headers.ts'

/*
 * To inflate one small entry costs as much for setting up as for inflating. Many are inflated by one call, which the thread pool
 * works on while this thread writes what came of the call before: their packed bytes, one behind the other, are made the members
 * of a gzip file (RFC 1952), each with the CRC and the size that the directory gives as its trailer.
 */

const MEMBER_MAGIC = Buffer.from([0x1f, 0x8b, 0x08])
const MEMBER_HEADER = Buffer.concat([MEMBER_MAGIC, Buffer.alloc(7)])
const MEMBER_TRAILER_BYTES = 8
const MEMBER_EXTRA_BYTES = MEMBER_HEADER.length + MEMBER_TRAILER_BYTES
/** Spare room, so that zlib sees the end without a second buffer. */
const SPARE_BYTES = 64

/** Whether an entry can be one of many: without any bytes of its own it could hide behind the next. */
export function canInflateTogether(entry: LocatedZipEntry): boolean {
  return entry.method === 'deflated' && entry.size > 0
}

/**
 * All bytes of small entries for which `canInflateTogether` holds, one behind the other, in a buffer that the caller may free; or
 * undefined where they cannot be vouched for together, which says nothing about any of them: `readSmallEntry` does. Vouches that each
 * entry has its declared size and CRC, and that none of its packed bytes was left over: a member can begin only where the magic is,
 * so each must end before a header of ours; it ends with a trailer that fits it; and as the sizes add up, with its own.
 */
export async function inflateTogether(
  window: ReadWindow,
  entries: readonly LocatedZipEntry[],
): Promise<Buffer | undefined> {
  const members = buildMembers(window, entries)
  if (countMagic(members) !== entries.length) return undefined
  const size = entries.reduce((sum, entry) => sum + entry.size, 0)
  const inflated = await gunzipWhole(members, size)
  if (inflated?.bytes.length !== size || inflated.used !== members.length) return undefined
  // Only now: after an error the thread pool may not have let go of them.
  freeBuffer(members)
  return inflated.bytes
}

/** Undefined for what is not gzip or has more than `size` bytes. */
function gunzipWhole(members: Buffer, size: number): Promise<{ bytes: Buffer; used: number } | undefined> {
  // Not from the pool that small buffers share: whoever uses the bytes frees them.
  const chunkSize = Math.max(size + SPARE_BYTES, Buffer.poolSize)
  return new Promise(resolve => {
    gunzip(members, { info: true, maxOutputLength: size, chunkSize }, (error, answer) => {
      if (error !== null) return resolve(undefined)
      // With `info` the answer is not the Buffer that the declared type says.
      const { buffer, engine } = answer as unknown as { buffer: Buffer; engine: Gunzip }
      resolve({ bytes: buffer, used: engine.bytesWritten })
    })
  })
}

function buildMembers(window: ReadWindow, entries: readonly LocatedZipEntry[]): Buffer {
  const length = entries.reduce((sum, { packedSize }) => sum + packedSize + MEMBER_EXTRA_BYTES, 0)
  const members = Buffer.allocUnsafeSlow(length)
  let at = 0
  for (const { dataOffset, packedSize, crc, size } of entries) {
    at += MEMBER_HEADER.copy(members, at)
    at += window.look(dataOffset, packedSize, WINDOW_BYTES).copy(members, at)
    at = members.writeUInt32LE(crc, at)
    at = members.writeUInt32LE(size, at)
  }
  return members
}

function countMagic(bytes: Buffer): number {
  let count = 0
  for (let at = bytes.indexOf(MEMBER_MAGIC); at !== -1; at = bytes.indexOf(MEMBER_MAGIC, at + 1)) count++
  return count
}
