import { openSync, readSync, writeSync } from 'node:fs'
import { DiskLogWriter } from './disk-log.ts'
import { type FuseAnswer, initAnswer, serveFuse } from './fuse.ts'

/**
 * Serves one file, the disk, to the kernel over the FUSE protocol, mounted over a file. This program answers one
 * request at a time, and logs writes and flushes in the order of its answers. Each flush therefore covers exactly the
 * writes before it in the log.
 *
 * usage: node logged-disk-server.ts IMAGE LOG
 */

const WRITE_HEADER_BYTES = 40
/**
 * The size of the file as the kernel sees it. A read in the second half of the file is a mark; each page of that half
 * has its own number.
 */
const SIZE = 1024 ** 4
export const MARK_BYTES = 4096
export const FIRST_MARK = SIZE / 2

/** The requests of linux/fuse.h that the kernel sends for the file. */
const REQUESTS = {
  2: 'forget',
  3: 'getattr',
  4: 'setattr',
  14: 'open',
  15: 'read',
  16: 'write',
  18: 'release',
  20: 'fsync',
  25: 'flush',
  26: 'init',
  36: 'interrupt',
  42: 'forget',
} as const
const EMPTY = Buffer.alloc(0)

interface Disk {
  readonly image: number
  readonly log: DiskLogWriter
}

function answer(disk: Disk, kind: number, body: Buffer): FuseAnswer {
  switch (REQUESTS[kind as keyof typeof REQUESTS]) {
    case 'init':
      return initAnswer(body)
    case 'getattr':
    case 'setattr':
      return attributes()
    case 'open':
      return Buffer.alloc(16)
    case 'read':
      return read(disk, Number(body.readBigUInt64LE(8)), body.readUInt32LE(16))
    case 'write':
      return write(disk, Number(body.readBigUInt64LE(8)), body.subarray(WRITE_HEADER_BYTES))
    case 'fsync':
      disk.log.append({ kind: 'flush' })
      return EMPTY
    case 'release':
    case 'flush':
      return EMPTY
    case 'forget':
    case 'interrupt':
      return undefined
    case undefined:
      return null
  }
}

function read({ image, log }: Disk, offset: number, length: number): Buffer {
  const bytes = Buffer.alloc(length)
  if (offset >= FIRST_MARK) log.append({ kind: 'mark', number: (offset - FIRST_MARK) / MARK_BYTES })
  else readSync(image, bytes, 0, length, offset)
  return bytes
}

function write({ image, log }: Disk, offset: number, bytes: Buffer): Buffer {
  writeSync(image, bytes, 0, bytes.length, offset)
  log.append({ kind: 'write', offset, bytes })
  const written = Buffer.alloc(8)
  written.writeUInt32LE(bytes.length, 0)
  return written
}

/** The fuse_attr_out of a file of mode 0600, valid for an hour. */
function attributes(): Buffer {
  const out = Buffer.alloc(16 + 88)
  out.writeBigUInt64LE(3600n, 0)
  const attribute = out.subarray(16)
  attribute.writeBigUInt64LE(1n, 0)
  attribute.writeBigUInt64LE(BigInt(SIZE), 8)
  attribute.writeUInt32LE(0o100600, 60)
  attribute.writeUInt32LE(1, 64)
  attribute.writeUInt32LE(4096, 80)
  return out
}

if (import.meta.main) {
  const [image, log] = process.argv.slice(2)
  if (image === undefined || log === undefined) throw new Error('usage: logged-disk-server.ts IMAGE LOG')
  const disk = { image: openSync(image, 'r+'), log: new DiskLogWriter(openSync(log, 'w')) }
  serveFuse(({ kind, body }) => answer(disk, kind, body))
  disk.log.close()
}
