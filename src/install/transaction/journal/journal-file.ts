import { closeSync, constants, fdatasync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { syncDirectory, syncFile } from '../../files/durable-files.ts'
import { temporaryName } from '../../files/temporary-name.ts'
import { tryUnlinkSync } from '../../files/trees/remove-tree.ts'
import { lockOpenFile } from '../../host/locks/kernel-lock.ts'
import { PADDING, parseJournalText, startOfPadding } from './journal-line.ts'

/** The journal's first size, and the steps in which it grows. */
const CHUNK_BYTES = 64 * 1024
/** Announcements never use up this room: an undo, its end and its reports always find it allocated. */
const ROOM_FOR_UNDO_BYTES = 32 * 1024

const syncData = promisify(fdatasync)

/**
 * Creates a journal of one line, with space for later ones. It exists completely or not at all, but is not durable yet.
 */
export function writeNewJournalSync(path: string, line: string): void {
  const temporary = temporaryName(path)
  try {
    writeFileSync(temporary, padded(line), { mode: 0o600, flag: 'wx' })
    renameSync(temporary, path)
  } catch (error) {
    tryUnlinkSync(temporary)
    throw error
  }
}

/**
 * The open journal. Text replaces its padding in place, so that it needs no new space. Lines after which a rollback
 * could be necessary leave room for that rollback, or make more.
 */
export class JournalFile {
  #path: string
  #fd: number
  #size: number
  /** Length of the complete lines, in bytes. */
  #length: number
  /** The end of the bytes that may no longer be padding, because a line was not written completely. */
  #dirtyEnd: number
  #isSynced = true
  #isLocked = false

  /** Opens a journal to write after its last complete line. Throws JournalDamage, or the system's error. */
  constructor(path: string) {
    this.#path = path
    this.#fd = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW)
    const bytes = readFileSync(this.#fd)
    this.#size = bytes.length
    this.#length = parseJournalText(bytes).length
    this.#dirtyEnd = Math.max(this.#length, startOfPadding(bytes))
  }

  /**
   * True if a line of this size fits. For an announcement, which must leave room for an undo, grows the journal or
   * throws.
   */
  async makeRoom(bytes: number, use: 'announce' | 'undo'): Promise<boolean> {
    const spare = use === 'announce' ? ROOM_FOR_UNDO_BYTES : 1
    if (this.#length + bytes + spare <= this.#size) return true
    if (use === 'undo') return false
    await this.#grow(bytes)
    return true
  }

  /**
   * Writes a line; with `isDurable`, it is on the disk when this returns. A line replaces only padding: whatever part
   * of it survives a power cut, the rest is padding.
   */
  async write(line: Buffer, isDurable: boolean): Promise<void> {
    await this.#eraseRemains()
    this.#dirtyEnd = this.#length + line.length
    this.#writeAll(line, this.#length)
    if (isDurable) await this.#sync()
    this.#length = this.#dirtyEnd
  }

  /**
   * Overwrites, if possible, the remains of a line that could not be written; if not, the next line does so durably.
   */
  tryErase(): void {
    try {
      this.#erase()
    } catch {
      // The next line tries again.
    }
  }

  /**
   * Locks the file, and any that replaces it under this name, while this process has it open. Returns whether it could.
   */
  async lock(): Promise<boolean> {
    this.#isLocked = await lockOpenFile(this.#fd)
    return this.#isLocked
  }

  /** Renames the journal, which is durable under its new name when this returns. */
  async rename(path: string): Promise<void> {
    await syncFile(this.#fd)
    renameSync(this.#path, path)
    this.#path = path
    this.#isSynced = true
    // From now on, the host's lock says whether this process is alive.
    this.#isLocked = false
    await syncDirectory(dirname(path))
  }

  /** Removes the journal and closes it. */
  discard(): void {
    this.close()
    tryUnlinkSync(this.#path)
  }

  close(): void {
    closeSync(this.#fd)
  }

  async #eraseRemains(): Promise<void> {
    if (this.#dirtyEnd === this.#length) return
    this.#erase()
    await this.#sync()
    this.#dirtyEnd = this.#length
  }

  #erase(): void {
    this.#writeAll(Buffer.alloc(this.#dirtyEnd - this.#length, PADDING), this.#length)
  }

  async #sync(): Promise<void> {
    if (this.#isSynced) return
    await syncData(this.#fd)
    this.#isSynced = true
  }

  #writeAll(bytes: Buffer, position: number): void {
    this.#isSynced = false
    for (let done = 0; done < bytes.length; )
      done += writeSync(this.#fd, bytes, done, bytes.length - done, position + done)
  }

  /** Grows into a new file, which is open before it takes the name; if that fails, the old one stays in use. */
  async #grow(bytes: number): Promise<void> {
    const text = readFileSync(this.#path).toString('utf8', 0, this.#length)
    const wanted = padded(text, bytes)
    const temporary = temporaryName(this.#path)
    const fd = openSync(temporary, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600)
    try {
      writeFileSync(fd, wanted)
      await syncFile(fd)
      if (this.#isLocked && !(await lockOpenFile(fd))) throw new Error(`${temporary} cannot be locked.`)
      renameSync(temporary, this.#path)
    } catch (error) {
      closeSync(fd)
      tryUnlinkSync(temporary)
      throw error
    }
    closeSync(this.#fd)
    this.#fd = fd
    this.#size = Buffer.byteLength(wanted)
    this.#dirtyEnd = this.#length
    this.#isSynced = true
    await syncDirectory(dirname(this.#path))
  }
}

/** Returns the text with room for as many bytes more, and for an undo after them. */
function padded(text: string, more = 0): string {
  const used = Buffer.byteLength(text)
  const size = Math.ceil((used + more + ROOM_FOR_UNDO_BYTES) / CHUNK_BYTES) * CHUNK_BYTES
  return text + PADDING.repeat(size - used)
}
