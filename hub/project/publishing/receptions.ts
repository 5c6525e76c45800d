import { HubError } from '../../errors.ts'
import { type Disk, requireRoom } from './disk-space.ts'

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
