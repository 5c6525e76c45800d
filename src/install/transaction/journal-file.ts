import { closeSync, constants, fdatasync, openSync, readFileSync, writeSync } from 'node:fs'
import { promisify } from 'node:util'
import { replaceFile } from '../files/durable-files.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { PADDING, parseJournalText } from './journal-line.ts'

/** The journal's size at first, and what it grows by. */
const CHUNK_BYTES = 64 * 1024
/** Never used up by what announces a change: an undo, its end and its reports always find this room allocated. */
const ROOM_FOR_UNDO_BYTES = 32 * 1024
/** What a file system writes as a whole; so what a power cut leaves of a record is its beginning. */
const PAGE_BYTES = 4096

const syncData = promisify(fdatasync)

/** Makes a durable journal of one line, with room for those to come. Whole, or not there; so too when it throws. */
export async function writeNewJournal(path: string, line: string): Promise<void> {
  try {
    await replaceFile(path, padded(line))
  } catch (error) {
    // It may be there and not be durable: the run reports its own end, so no other may recover it.
    tryUnlinkSync(path)
    throw error
  }
}

/**
 * The open journal: text is written over its padding, in place, so that it needs no space. The lines after which a
 * rollback could be necessary leave room for that rollback, or make more.
 */
export class JournalFile {
  readonly #path: string
  #fd: number
  #size: number
  /** Of the whole lines. */
  #length: number
  /** What may not be padding any more ends here: a line that was not written completely. */
  #dirtyEnd: number
  #isSynced = true

  /** Opens a journal to write after its last whole line. Throws JournalDamage, or what the disk says. */
  constructor(path: string) {
    this.#path = path
    this.#fd = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW)
    const bytes = readFileSync(this.#fd)
    this.#size = bytes.length
    this.#length = parseJournalText(bytes).length
    this.#dirtyEnd = Math.max(this.#length, bytes.toString('latin1').trimEnd().length)
  }

  /** Whether a line of so many bytes has room; makes more for one that must leave enough for an undo. Throws then. */
  async makeRoom(bytes: number, use: 'announce' | 'undo'): Promise<boolean> {
    const spare = use === 'announce' ? ROOM_FOR_UNDO_BYTES : 1
    if (this.#length + PAGE_BYTES + bytes + spare <= this.#size) return true
    if (use === 'undo') return false
    await this.#grow(bytes)
    return true
  }

  /**
   * Writes a line; with `isDurable`, it is on the disk when this returns. A page is written only after the one before it
   * is on the disk, so what a power cut leaves is always a beginning.
   */
  async write(line: Buffer, isDurable: boolean): Promise<void> {
    const start = this.#startOf(line)
    const end = start + line.length
    const bytes = Buffer.concat([line, Buffer.alloc(Math.max(0, this.#dirtyEnd - end), PADDING)])
    this.#dirtyEnd = Math.max(this.#dirtyEnd, end)
    for (const { piece, position } of piecesOf(bytes, start)) {
      if (position % PAGE_BYTES === 0) await this.#sync()
      this.#isSynced = false
      this.#writeAll(piece, position)
    }
    if (isDurable) await this.#sync()
    this.#length = end
    this.#dirtyEnd = end
  }

  /** Overwrites what is left of a line that could not be written, if that is possible. */
  tryErase(): void {
    try {
      this.#writeAll(Buffer.alloc(this.#dirtyEnd - this.#length, PADDING), this.#length)
      this.#dirtyEnd = this.#length
    } catch {
      // The next line is written over it.
    }
  }

  close(): void {
    closeSync(this.#fd)
  }

  /** A line that fits a page is never cut in two by the end of one. */
  #startOf(line: Buffer): number {
    const left = PAGE_BYTES - (this.#length % PAGE_BYTES)
    return line.length > left && line.length <= PAGE_BYTES ? this.#length + left : this.#length
  }

  async #sync(): Promise<void> {
    if (this.#isSynced) return
    await syncData(this.#fd)
    this.#isSynced = true
  }

  #writeAll(bytes: Buffer, position: number): void {
    for (let done = 0; done < bytes.length; )
      done += writeSync(this.#fd, bytes, done, bytes.length - done, position + done)
  }

  async #grow(bytes: number): Promise<void> {
    const text = readFileSync(this.#path).toString('utf8', 0, this.#length)
    const wanted = padded(text, bytes)
    await replaceFile(this.#path, wanted)
    const fd = openSync(this.#path, constants.O_RDWR | constants.O_NOFOLLOW)
    closeSync(this.#fd)
    this.#fd = fd
    this.#size = Buffer.byteLength(wanted)
    this.#dirtyEnd = this.#length
    this.#isSynced = true
  }
}

/** The text with room for as many bytes more, and for an undo after them. */
function padded(text: string, more = 0): string {
  const used = Buffer.byteLength(text)
  const size = Math.ceil((used + more + ROOM_FOR_UNDO_BYTES) / CHUNK_BYTES) * CHUNK_BYTES
  return text + PADDING.repeat(size - used)
}

function* piecesOf(bytes: Buffer, start: number): Iterable<{ piece: Buffer; position: number }> {
  for (let done = 0; done < bytes.length; ) {
    const position = start + done
    const size = Math.min(bytes.length - done, PAGE_BYTES - (position % PAGE_BYTES))
    yield { piece: bytes.subarray(done, done + size), position }
    done += size
  }
}
