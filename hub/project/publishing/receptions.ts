import { statfs } from 'node:fs/promises'
import { HubError } from '../../errors.ts'

const MOST_AT_ONCE = 2
/** The file as it came, and the artifact that it becomes. */
const COPIES = 2

/** Uploads share their disk with the database, which must never find it full: no report could be written. */
export class Receptions {
  #running = 0
  #promised = 0

  /**
   * Runs the work if the disk of `folder` has room for it, with `reserveBytes` to spare. Throws HubError 503 next to two
   * others, and 507 without the room. `bytes`: the most that may come.
   */
  async run<T>({ folder, bytes, reserveBytes }: Wanted, work: () => Promise<T>): Promise<T> {
    if (this.#running === MOST_AT_ONCE)
      throw new HubError(503, `The hub receives ${MOST_AT_ONCE} sealed files already: send this one again in a minute.`)
    const promised = COPIES * bytes
    this.#running += 1
    this.#promised += promised
    try {
      await requireFree(folder, this.#promised + reserveBytes)
      return await work()
    } finally {
      this.#running -= 1
      this.#promised -= promised
    }
  }
}

interface Wanted {
  readonly folder: string
  readonly bytes: number
  readonly reserveBytes: number
}

async function requireFree(folder: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder)
  const free = bavail * bsize
  if (free >= bytes) return
  throw new HubError(
    507,
    `The hub's disk has ${free} bytes free, and this sealed file needs ${bytes} with those that are being received and a reserve for reports: free some of its disk.`,
  )
}
