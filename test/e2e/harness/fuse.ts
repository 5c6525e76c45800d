import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, readSync, writeSync } from 'node:fs'
import { run } from './mounts.ts'

/** Descriptor 3 of a server is an open /dev/fuse that is mounted, or about to be. */
const FUSE = 3
/** The most bytes that the kernel may write in one request. The buffer also has room for the request's headers. */
const MAX_WRITE = 128 * 1024
const BUFFER_BYTES = MAX_WRITE + 4096
const REQUEST_HEADER_BYTES = 40
const ENOSYS = 38

/** The reason why no server can use FUSE here; false if one can. */
export function whyNoFuse(): string | false {
  try {
    closeSync(openSync('/dev/fuse', 'r+'))
    return false
  } catch (error) {
    return `needs /dev/fuse (${error instanceof Error ? error.message : error})`
  }
}

/** The server of a mounted FUSE file system, and the path of the mount. */
interface Served {
  readonly server: ChildProcess
  readonly at: string
}

/** Starts a server with these arguments and mounts it on a file or directory; `options` are further mount options. */
export function mountServed(program: readonly string[], at: string, options: string): Served {
  const fuse = openSync('/dev/fuse', 'r+')
  try {
    const server = spawn(process.execPath, program, { stdio: ['ignore', 'inherit', 'inherit', fuse] })
    const all = `fd=3,user_id=0,group_id=0,${options}`
    const { status, stderr } = spawnSync('mount', ['-i', '-t', 'fuse', '-o', all, 'served', at], {
      stdio: ['ignore', 'ignore', 'pipe', fuse],
      encoding: 'utf8',
    })
    if (status === 0) return { server, at }
    server.kill()
    throw new Error(`mount -t fuse: ${stderr}`)
  } finally {
    closeSync(fuse)
  }
}

/** Unmounts, and waits for the end of the server. */
export async function unmountServed({ server, at }: Served): Promise<void> {
  run('umount', '-l', at)
  if (server.exitCode === null) await once(server, 'exit')
}

/** A request of the kernel. `kind` and `body` have the forms of linux/fuse.h. */
export interface FuseRequest {
  readonly kind: number
  /** The inode, in the server's own numbers; 1 is the root. */
  readonly node: bigint
  readonly uid: number
  readonly gid: number
  readonly body: Buffer
}

/** The body of the answer; undefined for a request without an answer, and null for one that is not supported. */
export type FuseAnswer = Buffer | undefined | null

/** Answers one request at a time until the file system is unmounted. A system error that `answer` throws is passed on. */
export function serveFuse(answer: (request: FuseRequest) => FuseAnswer): void {
  const buffer = Buffer.alloc(BUFFER_BYTES)
  for (let length = readRequest(buffer); length !== undefined; length = readRequest(buffer)) {
    const unique = buffer.readBigUInt64LE(8)
    try {
      const body = answer(requestIn(buffer, length))
      if (body !== undefined) reply(unique, body ?? ENOSYS)
    } catch (error) {
      const { errno } = error as NodeJS.ErrnoException
      if (errno === undefined) throw error
      reply(unique, -errno)
    }
  }
}

function requestIn(buffer: Buffer, length: number): FuseRequest {
  const [kind, node] = [buffer.readUInt32LE(4), buffer.readBigUInt64LE(16)]
  const [uid, gid] = [buffer.readUInt32LE(24), buffer.readUInt32LE(28)]
  return { kind, node, uid, gid, body: buffer.subarray(REQUEST_HEADER_BYTES, length) }
}

/** The fuse_init_out of version 7.31, for the request to initialize. */
export function initAnswer(request: Buffer): Buffer {
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

/** Writes the fuse_out_header and the body; a number is an errno. */
function reply(unique: bigint, answer: Buffer | number): void {
  const body = typeof answer === 'number' ? Buffer.alloc(0) : answer
  const header = Buffer.alloc(16)
  header.writeUInt32LE(header.length + body.length, 0)
  header.writeInt32LE(typeof answer === 'number' ? -answer : 0, 4)
  header.writeBigUInt64LE(unique, 8)
  try {
    writeSync(FUSE, Buffer.concat([header, body]))
  } catch (error) {
    // The process that asked was interrupted.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

/** Returns undefined once the file system is unmounted: the read then fails with ENODEV. */
function readRequest(buffer: Buffer): number | undefined {
  try {
    return readSync(FUSE, buffer, 0, buffer.length, null)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // A request was interrupted before it was read.
    if (code === 'ENOENT' || code === 'EINTR' || code === 'EAGAIN') return readRequest(buffer)
    if (code === 'EPERM') {
      // This program started before the file system was mounted.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
      return readRequest(buffer)
    }
    if (code === 'ENODEV') return undefined
    throw error
  }
}
