import {
  type BigIntStats,
  chmodSync,
  closeSync,
  constants,
  type Dirent,
  fstatSync,
  ftruncateSync,
  lchownSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
  renameSync,
  rmdirSync,
  statfsSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { constants as system } from 'node:os'
import { type FuseAnswer, type FuseRequest, initAnswer, serveFuse } from './fuse.ts'

/**
 * Serves a folder over the FUSE protocol as a file system that ignores the case and the Unicode form of names, and
 * lists each name as it was first written, like ext4 with `casefold`, APFS or NTFS.
 *
 * usage: node folding-disk-server.ts FOLDER
 */

/** The requests of linux/fuse.h that are supported. */
const REQUESTS = {
  1: 'lookup',
  2: 'forget',
  3: 'getattr',
  4: 'setattr',
  5: 'readlink',
  6: 'symlink',
  9: 'mkdir',
  10: 'unlink',
  11: 'rmdir',
  12: 'rename',
  13: 'link',
  14: 'open',
  15: 'read',
  16: 'write',
  17: 'statfs',
  18: 'release',
  20: 'fsync',
  25: 'flush',
  26: 'init',
  27: 'opendir',
  28: 'readdir',
  29: 'releasedir',
  30: 'fsyncdir',
  35: 'create',
  36: 'interrupt',
  42: 'forget',
  45: 'rename2',
} as const

const ROOT = 1n
const EMPTY = Buffer.alloc(0)
/** Bits of `valid` in fuse_setattr_in. */
const SET = { mode: 1, uid: 2, gid: 4, size: 8, atime: 16, mtime: 32, handle: 64, atimeNow: 128, mtimeNow: 256 }
const RENAME_NOREPLACE = 1
const GETATTR_HANDLE = 1
const TYPES = { directory: 4, file: 8, symlink: 10 }

interface Node {
  readonly parent: bigint
  readonly name: string
  readonly ino: bigint
}

class FoldingDisk {
  readonly #folder: string
  readonly #nodes = new Map<bigint, Node>()
  /** The node of each path, by the parent's node and the name as it is listed. */
  readonly #numbers = new Map<string, bigint>()
  /** The open descriptors of each node: a removed file is reached only by one of them. */
  readonly #open = new Map<bigint, number[]>()
  readonly #listings = new Map<bigint, Dirent[]>()
  #next = ROOT + 1n

  constructor(folder: string) {
    this.#folder = folder
  }

  answer({ kind, node, uid, gid, body }: FuseRequest): FuseAnswer {
    const owner = { uid, gid }
    switch (REQUESTS[kind as keyof typeof REQUESTS]) {
      case 'init':
        return initAnswer(body)
      case 'lookup':
        return this.#entry(node, this.#existing(node, textsIn(body)[0]))
      case 'getattr':
        return this.#attributes(
          node,
          (body.readUInt32LE(0) & GETATTR_HANDLE) === 0 ? undefined : body.readBigUInt64LE(8),
        )
      case 'setattr':
        return this.#setAttributes(node, body)
      case 'readlink':
        return Buffer.from(readlinkSync(this.#path(node)))
      case 'symlink': {
        const [name, target] = textsIn(body)
        return this.#made(node, this.#free(node, name), owner, path => symlinkSync(target ?? '', path))
      }
      case 'mkdir': {
        const name = this.#free(node, textsIn(body.subarray(8))[0])
        return this.#made(node, name, owner, path => mkdirSync(path, body.readUInt32LE(0) & 0o7777))
      }
      case 'unlink':
        unlinkSync(this.#taken(node, textsIn(body)[0]))
        return EMPTY
      case 'rmdir':
        rmdirSync(this.#taken(node, textsIn(body)[0]))
        return EMPTY
      case 'rename':
        return this.#rename(node, body.readBigUInt64LE(0), textsIn(body.subarray(8)))
      case 'rename2': {
        const names = textsIn(body.subarray(16))
        const flags = body.readUInt32LE(8)
        if (flags > RENAME_NOREPLACE) throw fault('EINVAL')
        if (flags === RENAME_NOREPLACE) this.#free(body.readBigUInt64LE(0), names[1])
        return this.#rename(node, body.readBigUInt64LE(0), names)
      }
      case 'link': {
        const source = this.#path(body.readBigUInt64LE(0))
        return this.#made(node, this.#free(node, textsIn(body.subarray(8))[0]), undefined, path =>
          linkSync(source, path),
        )
      }
      case 'create':
        return this.#create(node, body, owner)
      case 'open':
        return opened(
          this.#openAt(node, this.#path(node), body.readUInt32LE(0) & (constants.O_RDWR + constants.O_WRONLY)),
        )
      case 'read':
        return read(Number(body.readBigUInt64LE(0)), Number(body.readBigUInt64LE(8)), body.readUInt32LE(16))
      case 'write':
        return write(Number(body.readBigUInt64LE(0)), Number(body.readBigUInt64LE(8)), body.subarray(40))
      case 'release': {
        const fd = Number(body.readBigUInt64LE(0))
        closeSync(fd)
        this.#open.set(node, this.#open.get(node)?.filter(other => other !== fd) ?? [])
        return EMPTY
      }
      case 'statfs':
        return spaceOf(this.#folder)
      case 'opendir':
        this.#listings.set(this.#next, [])
        return opened(Number(this.#next++))
      case 'readdir':
        return this.#list(node, body)
      case 'releasedir':
        this.#listings.delete(body.readBigUInt64LE(0))
        return EMPTY
      case 'fsync':
      case 'fsyncdir':
      case 'flush':
        return EMPTY
      case 'forget':
      case 'interrupt':
        return undefined
      case undefined:
        return null
    }
  }

  #path(node: bigint): string {
    if (node === ROOT) return this.#folder
    const known = this.#nodes.get(node)
    if (known === undefined) throw fault('ENOENT')
    return `${this.#path(known.parent)}/${known.name}`
  }

  /** The name under which a directory lists an entry that is found by `name`. */
  #listed(directory: bigint, name = ''): string | undefined {
    const path = this.#path(directory)
    if (lstatSync(`${path}/${name}`, { throwIfNoEntry: false }) !== undefined) return name
    return readdirSync(path).find(other => keyOf(other) === keyOf(name))
  }

  #existing(directory: bigint, name: string | undefined): string {
    const listed = this.#listed(directory, name)
    if (listed === undefined) throw fault('ENOENT')
    return listed
  }

  #free(directory: bigint, name = ''): string {
    if (this.#listed(directory, name) !== undefined) throw fault('EEXIST')
    return name
  }

  /** The path of an entry that is removed; its node keeps its open files only. */
  #taken(directory: bigint, name: string | undefined): string {
    const listed = this.#existing(directory, name)
    this.#forget(directory, listed)
    return `${this.#path(directory)}/${listed}`
  }

  #forget(directory: bigint, listed: string): void {
    const node = this.#numbers.get(`${directory}/${listed}`)
    this.#numbers.delete(`${directory}/${listed}`)
    if (node !== undefined) this.#nodes.delete(node)
  }

  #number(parent: bigint, name: string, { ino }: BigIntStats): bigint {
    const key = `${parent}/${name}`
    const known = this.#numbers.get(key)
    if (known !== undefined && this.#nodes.get(known)?.ino === ino) return known
    const number = this.#next++
    this.#numbers.set(key, number)
    this.#nodes.set(number, { parent, name, ino })
    return number
  }

  #entry(directory: bigint, listed: string): Buffer {
    const stat = lstatSync(`${this.#path(directory)}/${listed}`, { bigint: true })
    const head = Buffer.alloc(40)
    head.writeBigUInt64LE(this.#number(directory, listed, stat), 0)
    return Buffer.concat([head, attributesOf(stat)])
  }

  #made(
    directory: bigint,
    name: string,
    owner: { uid: number; gid: number } | undefined,
    make: (path: string) => void,
  ): Buffer {
    const path = `${this.#path(directory)}/${name}`
    make(path)
    if (owner !== undefined) lchownSync(path, owner.uid, owner.gid)
    return this.#entry(directory, name)
  }

  #create(directory: bigint, body: Buffer, owner: { uid: number; gid: number }): Buffer {
    const [flags, mode] = [body.readUInt32LE(0), body.readUInt32LE(4) & 0o7777]
    const [name = ''] = textsIn(body.subarray(16))
    const listed = this.#listed(directory, name)
    if (listed !== undefined && (flags & constants.O_EXCL) !== 0) throw fault('EEXIST')
    const access = flags & (constants.O_RDWR | constants.O_WRONLY)
    const path = `${this.#path(directory)}/${listed ?? name}`
    const fd = listed === undefined ? openSync(path, constants.O_CREAT | constants.O_EXCL | access, mode) : undefined
    if (fd !== undefined) lchownSync(path, owner.uid, owner.gid)
    const entry = this.#entry(directory, listed ?? name)
    const node = entry.readBigUInt64LE(0)
    return Buffer.concat([entry, opened(this.#openAt(node, path, access, fd))])
  }

  #openAt(node: bigint, path: string, access: number, fd = openSync(path, access)): number {
    this.#open.set(node, [...(this.#open.get(node) ?? []), fd])
    return fd
  }

  #rename(from: bigint, to: bigint, [oldName, newName = '']: string[]): Buffer {
    const source = this.#existing(from, oldName)
    const there = this.#listed(to, newName)
    const isSame = from === to && there === source
    const target = isSame ? newName : (there ?? newName)
    renameSync(`${this.#path(from)}/${source}`, `${this.#path(to)}/${target}`)
    const moved = this.#numbers.get(`${from}/${source}`)
    const known = moved === undefined ? undefined : this.#nodes.get(moved)
    if (!isSame) this.#forget(to, target)
    this.#numbers.delete(`${from}/${source}`)
    if (moved === undefined || known === undefined) return EMPTY
    this.#nodes.set(moved, { ...known, parent: to, name: target })
    this.#numbers.set(`${to}/${target}`, moved)
    return EMPTY
  }

  #stat(node: bigint, handle?: bigint): BigIntStats {
    const fd = handle === undefined ? this.#open.get(node)?.[0] : Number(handle)
    const isGone = node !== ROOT && !this.#nodes.has(node)
    if (fd !== undefined && (isGone || handle !== undefined)) return fstatSync(fd, { bigint: true })
    return lstatSync(this.#path(node), { bigint: true })
  }

  #attributes(node: bigint, handle?: bigint): Buffer {
    return Buffer.concat([Buffer.alloc(16), attributesOf(this.#stat(node, handle))])
  }

  #setAttributes(node: bigint, body: Buffer): Buffer {
    const valid = body.readUInt32LE(0)
    const has = (bit: number): boolean => (valid & bit) !== 0
    const handle = has(SET.handle) ? body.readBigUInt64LE(8) : undefined
    const before = this.#stat(node, handle)
    if (has(SET.size)) {
      if (handle === undefined) truncateSync(this.#path(node), Number(body.readBigUInt64LE(16)))
      else ftruncateSync(Number(handle), Number(body.readBigUInt64LE(16)))
    }
    if (has(SET.uid) || has(SET.gid)) {
      const uid = has(SET.uid) ? body.readUInt32LE(76) : Number(before.uid)
      lchownSync(this.#path(node), uid, has(SET.gid) ? body.readUInt32LE(80) : Number(before.gid))
    }
    if (has(SET.mode)) chmodSync(this.#path(node), body.readUInt32LE(68) & 0o7777)
    if (has(SET.atime) || has(SET.mtime)) {
      const timeAt = (at: number, nsAt: number): number =>
        Number(body.readBigUInt64LE(at)) + body.readUInt32LE(nsAt) / 1e9
      const now = Date.now() / 1000
      const atime = has(SET.atimeNow) ? now : has(SET.atime) ? timeAt(32, 56) : Number(before.atimeMs) / 1000
      const mtime = has(SET.mtimeNow) ? now : has(SET.mtime) ? timeAt(40, 60) : Number(before.mtimeMs) / 1000
      lutimesSync(this.#path(node), atime, mtime)
    }
    return this.#attributes(node, handle)
  }

  /** Each fuse_dirent has the number of the next one as its offset. */
  #list(node: bigint, body: Buffer): Buffer {
    const [handle, first, room] = [body.readBigUInt64LE(0), Number(body.readBigUInt64LE(8)), body.readUInt32LE(16)]
    if (first === 0) this.#listings.set(handle, readdirSync(this.#path(node), { withFileTypes: true }))
    const entries: Buffer[] = []
    let length = 0
    for (const [index, entry] of (this.#listings.get(handle) ?? []).entries()) {
      if (index < first) continue
      const listed = direntOf(entry, index + 1)
      if (length + listed.length > room) break
      entries.push(listed)
      length += listed.length
    }
    return Buffer.concat(entries)
  }
}

function keyOf(name: string): string {
  return name.normalize('NFC').toLowerCase()
}

function fault(code: 'ENOENT' | 'EEXIST' | 'EINVAL'): Error {
  return Object.assign(new Error(code), { errno: -system.errno[code] })
}

/** The texts in a request, each of which ends with a zero byte. */
function textsIn(body: Buffer): string[] {
  return body.toString('utf8').split('\0').slice(0, -1)
}

function attributesOf(stat: BigIntStats): Buffer {
  const out = Buffer.alloc(88)
  const { ino, size, blocks, atimeNs, mtimeNs, ctimeNs, mode, nlink, uid, gid, blksize } = stat
  for (const [index, value] of [ino, size, blocks].entries()) out.writeBigUInt64LE(value, index * 8)
  for (const [index, time] of [atimeNs, mtimeNs, ctimeNs].entries()) {
    out.writeBigUInt64LE(time / 1_000_000_000n, 24 + index * 8)
    out.writeUInt32LE(Number(time % 1_000_000_000n), 48 + index * 4)
  }
  for (const [index, value] of [mode, nlink, uid, gid, 0n, blksize].entries())
    out.writeUInt32LE(Number(value), 60 + index * 4)
  return out
}

function opened(handle: number): Buffer {
  const out = Buffer.alloc(16)
  out.writeBigUInt64LE(BigInt(handle), 0)
  return out
}

function read(fd: number, offset: number, length: number): Buffer {
  const bytes = Buffer.alloc(length)
  return bytes.subarray(0, readSync(fd, bytes, 0, length, offset))
}

function write(fd: number, offset: number, bytes: Buffer): Buffer {
  const written = Buffer.alloc(8)
  written.writeUInt32LE(writeSync(fd, bytes, 0, bytes.length, offset), 0)
  return written
}

function spaceOf(folder: string): Buffer {
  const { blocks, bfree, bavail, files, ffree, bsize } = statfsSync(folder)
  const out = Buffer.alloc(80)
  for (const [index, value] of [blocks, bfree, bavail, files, ffree].entries())
    out.writeBigUInt64LE(BigInt(value), index * 8)
  for (const [index, value] of [bsize, 255, bsize].entries()) out.writeUInt32LE(value, 40 + index * 4)
  return out
}

function direntOf(entry: Dirent, next: number): Buffer {
  const name = Buffer.from(entry.name)
  const out = Buffer.alloc(Math.ceil((24 + name.length) / 8) * 8)
  // The kernel asks for the inode when it needs it.
  out.writeBigUInt64LE(0xffffffffn, 0)
  out.writeBigUInt64LE(BigInt(next), 8)
  out.writeUInt32LE(name.length, 16)
  out.writeUInt32LE(entry.isDirectory() ? TYPES.directory : entry.isSymbolicLink() ? TYPES.symlink : TYPES.file, 20)
  name.copy(out, 24)
  return out
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2)
  if (folder === undefined) throw new Error('usage: folding-disk-server.ts FOLDER')
  process.umask(0)
  const disk = new FoldingDisk(folder)
  serveFuse(request => disk.answer(request))
}
