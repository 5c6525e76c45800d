import { createWriteStream } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import type { Context } from 'hono'
import { FewAtATime } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import type { Store } from '../store.ts'

/** Everything that a route for uploads needs. */
export interface PublishContext {
  readonly store: Store
  /** The limit for an uploaded file. */
  readonly maxArtifactBytes: number
  /** The disk of the data folder. */
  readonly disk: Disk
}

/** A file that is being received, with its limit in bytes and its path on this disk. */
export interface Receiving {
  readonly maxBytes: number
  readonly disk: Disk
  readonly file: string
}

interface Reception<F, T> {
  /** Throws if the sender may no longer publish, because a key can be revoked while a file arrives. */
  readonly authorize: () => void
  /** Saves the file with saveFile, and returns the facts that came with it. */
  readonly receive: (to: Receiving) => Promise<F>
  readonly publish: (bytes: Buffer, facts: F) => Promise<T>
}

/** The most bytes that a form may have in addition to its file. */
const FORM_BYTES = 64 * 1024
/** The number of bytes after which the free space is checked again. */
const CHECKED_BYTES = 8 * 1024 * 1024
const RETRY_SECONDS = '60'

/**
 * Receives a file, and publishes it once no other file is being published. The file goes to a private folder next to
 * the data, so that a slow upload keeps nothing in memory; the folder is removed in any case. Throws HubError 413 as
 * soon as the file is known to have too many bytes, and 507 as soon as the disk has no room. Also throws as Receptions
 * and the parts of the reception do.
 */
export async function receiveUpload<F, T>(
  c: Context,
  { maxArtifactBytes: maxBytes, disk }: PublishContext,
  reception: Reception<F, T>,
): Promise<T> {
  const announced = Number(c.req.header('content-length') ?? maxBytes)
  if (announced > maxBytes + FORM_BYTES) throw tooLarge(maxBytes)
  try {
    return await receptions.run(disk, announced, () => receiveAndPublish({ maxBytes, disk }, reception))
  } catch (error) {
    if (error instanceof HubError && error.status === 503) c.header('Retry-After', RETRY_SECONDS)
    throw error
  }
}

async function receiveAndPublish<F, T>(
  { maxBytes, disk }: Omit<Receiving, 'file'>,
  { authorize, receive, publish }: Reception<F, T>,
): Promise<T> {
  const folder = await newUploadFolder(disk.folder)
  try {
    const file = join(folder, 'upload')
    const facts = await receive({ maxBytes, disk, file })
    return await publications.run(async () => {
      authorize()
      const bytes = await readFile(file)
      await requireRoom(disk, bytes.length)
      return await publish(bytes, facts)
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Saves the bytes as they arrive. Throws HubError 413 for too many bytes, and 507 if other programs fill the disk. */
export async function saveFile(chunks: AsyncIterable<Uint8Array>, { file, ...limits }: Receiving): Promise<void> {
  await pipeline(limited(chunks, limits), createWriteStream(file, { flags: 'wx', mode: 0o600 }))
}

async function* limited(
  chunks: AsyncIterable<Uint8Array>,
  { maxBytes, disk }: Omit<Receiving, 'file'>,
): AsyncGenerator<Uint8Array> {
  let [length, checked] = [0, 0]
  for await (const chunk of chunks) {
    length += chunk.length
    if (length > maxBytes) throw tooLarge(maxBytes)
    if (length - checked >= CHECKED_BYTES) {
      await requireRoom(disk, chunk.length)
      checked = length
    }
    yield chunk
  }
}

function tooLarge(maxBytes: number): HubError {
  return new HubError(413, `The file is larger than the limit of ${maxBytes} bytes.`)
}

const MOST_AT_ONCE = 2
/** The uploaded file, and the artifact that it becomes. */
const COPIES = 2

/** Limits how many files are received at once. */
class Receptions {
  #running = 0
  #promised = 0

  /**
   * Runs the work if the disk has room for everything that is being received. Throws HubError 503 if two other files
   * are being received, and 507 if there is no room. `bytes` is the most that may arrive.
   */
  async run<T>(disk: Disk, bytes: number, work: () => Promise<T>): Promise<T> {
    if (this.#running === MOST_AT_ONCE)
      throw new HubError(503, `The hub is already receiving ${MOST_AT_ONCE} files: send this one again in a minute.`)
    const promised = COPIES * bytes
    this.#running += 1
    this.#promised += promised
    try {
      await requireRoom(disk, this.#promised)
      return await work()
    } finally {
      this.#running -= 1
      this.#promised -= promised
    }
  }
}

const receptions = new Receptions()
/** One publication at a time, because each has its whole file in memory. */
const publications = new FewAtATime(1)

/** The disk that uploads share with the database. It must never be full, because the hub could then write no report. */
export interface Disk {
  /** A folder on the disk. */
  readonly folder: string
  /** The number of bytes that must stay free. */
  readonly reserveBytes: number
  readonly freeBytes: FreeBytes
}

export type FreeBytes = (folder: string) => Promise<number>

export async function freeBytesOf(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}

/** Throws HubError 507 if the disk lacks space for this many bytes in addition to the reserve. */
async function requireRoom({ folder, reserveBytes, freeBytes }: Disk, bytes: number): Promise<void> {
  const [free, needed] = [await freeBytes(folder), bytes + reserveBytes]
  if (free >= needed) return
  throw new HubError(
    507,
    `The hub's disk has ${free} bytes free, but the hub needs ${needed} for the files that it receives and as a reserve for reports: free some space on that disk.`,
  )
}

const FOLDER = 'uploads'
/** Contains the id and the start time of the process that created the folder. */
const NAME = /^(?<pid>\d+)-(?<start>\d+)-[A-Za-z0-9]{6}$/
/** The position of the start time in `/proc/PID/stat`, counted after the command, which may contain anything. */
const START_FIELD = 20

/** Creates a private folder for one upload, on the disk with the artifacts. */
export async function newUploadFolder(dataDir: string): Promise<string> {
  const folder = join(dataDir, FOLDER)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  return await mkdtemp(join(folder, `${process.pid}-${await startOf(process.pid)}-`))
}

/**
 * Removes the uploads of hubs that were killed, but none of a running hub. Logs an error if it cannot list the uploads,
 * and each path that it cannot remove.
 */
export async function removeLeftUploads(dataDir: string, log: (line: string) => void): Promise<void> {
  const folder = join(dataDir, FOLDER)
  const names = await readdir(folder).catch(error => {
    if (error.code !== 'ENOENT') log(cannotList(folder, error.code))
    return []
  })
  for (const name of names) {
    const path = join(folder, name)
    if (await isLeft(name)) await rm(path, { recursive: true }).catch(error => logStuck(path, error, log))
  }
}

function cannotList(folder: string, code: string): string {
  return `${folder} cannot be listed (${code}), so uploads that killed hubs left in it remain, and new uploads may fail: make it a folder that the hub's user can read and write, and restart the hub.`
}

/** Another hub may have removed the path in the meantime. */
function logStuck(path: string, { code }: NodeJS.ErrnoException, log: (line: string) => void): void {
  if (code === 'ENOENT') return
  log(`${path} cannot be removed (${code}): remove it by hand. A hub that was killed left it behind.`)
}

async function isLeft(name: string): Promise<boolean> {
  const { pid, start } = NAME.exec(name)?.groups ?? {}
  return pid !== undefined && (await startOf(Number(pid))) !== start
}

/**
 * The start time of a process in clock ticks since the machine started. It distinguishes processes that had the same
 * id. '0' if there is no such process, or if the system has no `/proc`.
 */
async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')
  return stat.slice(stat.lastIndexOf(')') + 1).split(' ')[START_FIELD] ?? '0'
}
