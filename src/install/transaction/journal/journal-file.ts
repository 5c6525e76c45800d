import { closeSync, constants, fdatasync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { syncDirectory, syncFile } from '../../files/durable-files.ts'
import { temporaryName } from '../../files/temporary-name.ts'
import { tryUnlinkSync } from '../../files/trees/remove-tree.ts'
import { PADDING, parseJournalText, startOfPadding } from './journal-line.ts'

/** The size of a journal is a multiple of this number. */
const CHUNK_BYTES = 64 * 1024
/**
 * Announcements leave this room free, so that it is already allocated for the records of an undo, the end and the
 * report.
 */
const ROOM_FOR_UNDO_BYTES = 32 * 1024

const syncData = promisify(fdatasync)

/** Creates a durable journal of one line, with space for more lines. If that fails, leaves no journal. */
export async function writeNewJournal(path: string, line: string): Promise<void> {
  const temporary = temporaryName(path)
  closeSync(await writeDurably(temporary, padded(line)))
  try {
    renameSync(temporary, path)
    await syncDirectory(dirname(path))
  } catch (error) {
    tryUnlinkSync(temporary)
    tryUnlinkSync(path)
    throw error
  }
}

/** Creates a durable file, and returns its open descriptor. If that fails, leaves no file. */
async function writeDurably(path: string, text: string): Promise<number> {
  const fd = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600)
  try {
    writeFileSync(fd, text)
    await syncFile(fd)
    return fd
  } catch (error) {
    closeSync(fd)
    tryUnlinkSync(path)
    throw error
  }
}

/**
 * The open journal. A line replaces padding in place, so it needs no new space. A line after which a rollback could be
 * necessary leaves room for that rollback, or makes more room.
 */
export class JournalFile {
  readonly #path: string
  #fd: number
  #size: number
  /** The length of the complete lines, in bytes. */
  #length: number
  /** The end of the bytes that may no longer be padding, because a line was not written completely. */
  #dirtyEnd: number
  #isSynced = true

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
   * True if a line of this size fits. For an announcement, which must leave room for an undo, grows the journal if
   * necessary, or throws.
   */
  async makeRoom(bytes: number, use: 'announce' | 'undo'): Promise<boolean> {
    const spare = use === 'announce' ? ROOM_FOR_UNDO_BYTES : 1
    if (this.#length + bytes + spare <= this.#size) return true
    if (use === 'undo') return false
    await this.#grow(bytes)
    return true
  }

  /**
   * Writes a line; with `isDurable`, the line is on the disk on return. A line replaces only padding, so wherever a
   * power cut loses part of the line, padding remains.
   */
  async write(line: Buffer, isDurable: boolean): Promise<void> {
    await this.#eraseRemains()
    this.#dirtyEnd = this.#length + line.length
    this.#writeAll(line, this.#length)
    if (isDurable) await this.#sync()
    this.#length = this.#dirtyEnd
  }

  /**
   * Overwrites, if possible, the remains of a line that was not written completely. The next `write` overwrites them
   * durably in any case.
   */
  tryErase(): void {
    try {
      this.#erase()
    } catch {
      // The next `write` tries again.
    }
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

  /**
   * Moves the journal to a larger file, which is open before it takes the journal's name. If that fails, the old file
   * stays in use.
   */
  async #grow(bytes: number): Promise<void> {
    const text = readFileSync(this.#path).toString('utf8', 0, this.#length)
    const wanted = padded(text, bytes)
    const temporary = temporaryName(this.#path)
    const fd = await writeDurably(temporary, wanted)
    try {
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

/** Returns the text with room for `more` bytes, and for an undo after them. */
function padded(text: string, more = 0): string {
  const used = Buffer.byteLength(text)
  const size = Math.ceil((used + more + ROOM_FOR_UNDO_BYTES) / CHUNK_BYTES) * CHUNK_BYTES
  return text + PADDING.repeat(size - used)
}
