import {
  closeSync,
  constants,
  fdatasync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import { errnoOf } from '../../core/errors.ts'
import { syncDirectory, syncFile, temporaryName } from '../files/durable.ts'
import { closeQuietlySync } from '../files/open.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import type { DeploymentFacts } from './facts.ts'
import { formatLine, PADDING, parseJournalText, startOfPadding } from './line.ts'
import { readJournal } from './read.ts'
import { type BeginRecord, DURABLE, type JournalRecord, OF_UNDO, REQUIRED } from './records.ts'

export interface Journal {
  /** Returns the record's number, or undefined if it was not written. Throws if a required record is not durable. */
  append(record: JournalRecord): Promise<number | undefined>
  close(): void
}

/**
 * Starts the journal of a deployment, redacted, with mode 0600 and room for an undo. The journal is durable when the
 * promise resolves. If it cannot be made durable, leaves no journal.
 */
export async function startJournal(path: string, begin: BeginRecord, redact: Redact = text => text): Promise<Journal> {
  await writeNewJournal(path, formatLine(1, redactRecord(begin, redact)))
  return continueJournal(path, 1, redact)
}

/** Opens a dead run's journal to append after its last complete record. */
export function openJournal(path: string, redact: Redact = text => text): Journal {
  return continueJournal(path, readJournal(path)?.length ?? 0, redact)
}

/** Removes the journal durably. The removal ends a deployment: without a journal, there is nothing to recover. */
export async function removeJournal(path: string): Promise<void> {
  try {
    unlinkSync(path)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return
    throw error
  }
  await syncDirectory(dirname(path))
}

function continueJournal(path: string, records: number, redact: Redact): Journal {
  const file = new JournalFile(path)
  let seq = records
  return {
    async append(record) {
      const { record: type } = record
      const line = Buffer.from(formatLine(seq + 1, redactRecord(record, redact)))
      try {
        if (!(await file.makeRoom(line.length, OF_UNDO.has(type) ? 'undo' : 'announce'))) return undefined
        await file.write(line, DURABLE.has(type))
        return ++seq
      } catch (error) {
        file.tryErase()
        if (REQUIRED.has(type)) throw error
        return undefined
      }
    },
    close: () => file.close(),
  }
}

/** The size of a journal is a multiple of this number. */
const CHUNK_BYTES = 64 * 1024
/**
 * Announcements leave this room free, so that it is already allocated for the records of an undo, the end and the
 * report.
 */
const ROOM_FOR_UNDO_BYTES = 32 * 1024

const syncData = promisify(fdatasync)

/** Creates a durable journal of one line, with space for more lines. If that fails, leaves no journal. */
async function writeNewJournal(path: string, line: string): Promise<void> {
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
class JournalFile {
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
    closeQuietlySync(this.#fd)
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

export type Redact = (text: string) => string

/** Returns the value with every text redacted, except in fields with these names; keys stay as they are. */
export function redactTexts(value: unknown, redact: Redact, exceptions: ReadonlySet<string>): unknown {
  if (typeof value === 'string') return redact(value)
  if (Array.isArray(value)) return value.map(item => redactTexts(item, redact, exceptions))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, field]) => [
      key,
      exceptions.has(key) ? field : redactTexts(field, redact, exceptions),
    ]),
  )
}

/**
 * Returns a journal record with all secrets removed from its texts from outside. Places, services, rows and the
 * operator's own facts stay as they are, because a recovery works with them. A version or a repository that contains a
 * secret becomes null.
 */
function redactRecord(record: JournalRecord, redact: Redact): JournalRecord {
  switch (record.record) {
    case 'begin':
      return { ...record, facts: { ...record.facts, ...redactFacts(record.facts, redact) } }
    case 'facts':
      return { ...record, facts: { ...record.facts, ...redactFacts(record.facts, redact) } }
    case 'step':
      return { ...record, error: record.error === null ? null : redact(record.error) }
    case 'end':
      return { ...record, end: redactTexts(record.end, redact, END_WORDS) as typeof record.end }
    case 'state':
    case 'change':
    case 'changes':
    case 'service':
    case 'undone':
    case 'commit':
    case 'reported':
    case 'recovery':
      return record
  }
}

const END_WORDS: ReadonlySet<string> = new Set(['outcome', 'completed_at', 'code', 'step'])
const DRIFT_WORDS: ReadonlySet<string> = new Set(['shelf', 'id', 'directory', 'version', 'instead'])
const FOREIGN_FACTS = ['version', 'previous_version', 'repo'] as const

type PartialFacts = { [K in keyof DeploymentFacts]?: DeploymentFacts[K] | undefined }

function redactFacts(facts: PartialFacts, redact: Redact): Partial<DeploymentFacts> {
  const hasSecret = (name: (typeof FOREIGN_FACTS)[number]): boolean => redact(facts[name] ?? '') !== (facts[name] ?? '')
  const drift = facts.drift?.map(entry => redactTexts(entry, redact, DRIFT_WORDS) as typeof entry)
  return { ...Object.fromEntries(FOREIGN_FACTS.filter(hasSecret).map(name => [name, null])), ...(drift && { drift }) }
}
