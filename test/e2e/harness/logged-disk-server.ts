import { openSync, readSync, writeSync } from 'node:fs'
import { DiskLogWriter } from './disk-log.ts'

/**
 * Serves one file, the disk, to the kernel over the FUSE protocol. Descriptor 3 is an open /dev/fuse that has been
 * mounted over a file. This program answers one request at a time, and logs writes and flushes in the order of its
 * answers. Each flush therefore covers exactly the writes before it in the log.
 *
 * usage: node logged-disk-server.ts IMAGE LOG
 */

const FUSE = 3
/** The most bytes that the kernel may write in one request. The buffer also has room for the request's headers. */
const MAX_WRITE = 128 * 1024
const BUFFER_BYTES = MAX_WRITE + 4096
const REQUEST_HEADER_BYTES = 40
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
const ENOSYS = 38
const EMPTY = Buffer.alloc(0)

interface Disk {
  readonly image: number
  readonly log: DiskLogWriter
}

/** The body of the answer; undefined if the request gets no answer, and null if the request is not supported. */
function answer(disk: Disk, request: number, body: Buffer): Buffer | undefined | null {
  switch (REQUESTS[request as keyof typeof REQUESTS]) {
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

/** The fuse_init_out of version 7.31. */
function initAnswer(request: Buffer): Buffer {
  const init = Buffer.alloc(64)
  init.writeUInt32LE(7, 0)
  init.writeUInt32LE(31, 4)
  init.writeUInt32LE(request.readUInt32LE(8), 8)
  const bigWrites = 1 << 5
  init.writeUInt32LE(bigWrites, 12)
  init.writeUInt16LE(16, 16)
  init.writeUInt16LE(12, 18)
  init.writeUInt32LE(MAX_WRITE, 20)
  init.writeUInt32LE(1, 24)
  return init
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

/** The fuse_out_header and the body. */
function reply(unique: bigint, body: Buffer | null): void {
  const header = Buffer.alloc(16)
  header.writeUInt32LE(header.length + (body?.length ?? 0), 0)
  header.writeInt32LE(body === null ? -ENOSYS : 0, 4)
  header.writeBigUInt64LE(unique, 8)
  writeSync(FUSE, Buffer.concat([header, body ?? EMPTY]))
}

/** Serves until the file is unmounted: the read then fails with ENODEV. */
function serve(disk: Disk): void {
  const buffer = Buffer.alloc(BUFFER_BYTES)
  for (let length = readRequest(buffer); length !== undefined; length = readRequest(buffer)) {
    const body = answer(disk, buffer.readUInt32LE(4), buffer.subarray(REQUEST_HEADER_BYTES, length))
    if (body !== undefined) reply(buffer.readBigUInt64LE(8), body)
  }
  disk.log.close()
}

function readRequest(buffer: Buffer): number | undefined {
  try {
    return readSync(FUSE, buffer, 0, buffer.length, null)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // A request was interrupted before it was read.
    if (code === 'ENOENT' || code === 'EINTR' || code === 'EAGAIN') return readRequest(buffer)
    if (code === 'EPERM') {
      // This program started before the file was mounted.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
      return readRequest(buffer)
    }
    if (code === 'ENODEV') return undefined
    throw error
  }
}

if (import.meta.main) {
  const [image, log] = process.argv.slice(2)
  if (image === undefined || log === undefined) throw new Error('usage: logged-disk-server.ts IMAGE LOG')
  serve({ image: openSync(image, 'r+'), log: new DiskLogWriter(openSync(log, 'w')) })
}
