import fs from 'node:fs'
import type promises from 'node:fs/promises'
import { promisify } from 'node:util'

/*
 * Calls of `node:fs/promises` that are over in microseconds, made at once: the thread pool's round trip costs ten times what
 * they do, and a deployment makes two hundred of them. Same arguments, same answers, same errors. Not for whole trees, nor
 * for files of any size.
 */

export const access: typeof promises.access = direct(fs.accessSync)
export const chmod: typeof promises.chmod = direct(fs.chmodSync)
export const link: typeof promises.link = direct(fs.linkSync)
export const lstat = direct(fs.lstatSync) as typeof promises.lstat
export const mkdir = direct(fs.mkdirSync) as typeof promises.mkdir
export const mkdtemp = direct(fs.mkdtempSync) as typeof promises.mkdtemp
export const readFile = direct(fs.readFileSync) as typeof promises.readFile
export const readdir = direct(fs.readdirSync) as typeof promises.readdir
export const readlink = direct(fs.readlinkSync) as typeof promises.readlink
export const rename: typeof promises.rename = direct(fs.renameSync)
export const rmdir: typeof promises.rmdir = direct(fs.rmdirSync)
export const stat = direct(fs.statSync) as typeof promises.stat
export const statfs = direct(fs.statfsSync) as typeof promises.statfs
export const unlink: typeof promises.unlink = direct(fs.unlinkSync)
export const writeFile = direct(fs.writeFileSync) as typeof promises.writeFile

/** What a FileHandle can do, as far as it is used; whoever opened it closes it. */
export interface OpenFile {
  readonly fd: number
  stat(): Promise<fs.Stats>
  /** From where it was last read to its end. */
  readFile(): Promise<Buffer>
  /** `length` bytes from `position`, or as many as there are. */
  read(length: number, position: number): Promise<Buffer>
  /** Behind what was last written; at its end where it was opened for appending. */
  write(data: string | Buffer): Promise<void>
  chmod(mode: number): Promise<void>
  truncate(length: number): Promise<void>
  /** May take its time, and leaves the event loop free meanwhile. */
  sync(): Promise<void>
  close(): Promise<void>
}

export async function open(path: string, flags: string | number, mode?: number): Promise<OpenFile> {
  const fd = fs.openSync(path, flags, mode)
  return {
    fd,
    stat: async () => fs.fstatSync(fd),
    readFile: async () => fs.readFileSync(fd),
    async read(length, position) {
      const buffer = Buffer.alloc(length)
      return buffer.subarray(0, fs.readSync(fd, buffer, 0, length, position))
    },
    write: async data => fs.writeFileSync(fd, data),
    chmod: async mode => fs.fchmodSync(fd, mode),
    truncate: async length => fs.ftruncateSync(fd, length),
    sync: () => sync(fd),
    close: async () => fs.closeSync(fd),
  }
}

const sync = promisify(fs.fsync)

function direct<Args extends unknown[], Answer>(call: (...args: Args) => Answer): (...args: Args) => Promise<Answer> {
  return async (...args) => call(...args)
}
