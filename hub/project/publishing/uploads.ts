import { mkdir, mkdtemp, readdir, readFile, rm, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { HubError } from '../../errors.ts'

const MOST_AT_ONCE = 2
/** The uploaded file, and the artifact that it becomes. */
const COPIES = 2

/** Limits how many sealed files are received at once. */
export class Receptions {
  #running = 0
  #promised = 0

  /**
   * Runs the work if the disk has room for everything that is being received. Throws HubError 503 if two other files
   * are being received, and 507 if there is no room. `bytes` is the most that may arrive.
   */
  async run<T>(disk: Disk, bytes: number, work: () => Promise<T>): Promise<T> {
    if (this.#running === MOST_AT_ONCE)
      throw new HubError(
        503,
        `The hub is already receiving ${MOST_AT_ONCE} sealed files: send this one again in a minute.`,
      )
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
export async function requireRoom({ folder, reserveBytes, freeBytes }: Disk, bytes: number): Promise<void> {
  const [free, needed] = [await freeBytes(folder), bytes + reserveBytes]
  if (free >= needed) return
  throw new HubError(
    507,
    `The hub's disk has ${free} bytes free, but the hub needs ${needed} for the sealed files that it receives and as a reserve for reports: free some space on that disk.`,
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
