import { closeSync, constants, openSync, readFileSync } from 'node:fs'
import { z } from 'zod/mini'
import { errnoOf } from '../../../core/errors.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { type AnnouncedChange, numberedIn } from './announcement.ts'
import { JournalDamage, type JournalText, parseJournalText } from './journal-line.ts'
import { DURABLE, type JournalRecord, recordSchema } from './journal-record.ts'
import { verifySequence } from './journal-sequence.ts'

/**
 * Returns the records of the journal, or undefined if there is no journal. Leaves out the first torn record and all
 * that follow it, because their changes were never made. Throws JournalDamage for any other content that this action
 * would not write, and the system's error if there is a journal that cannot be read, also not at the second attempt.
 */
export function readJournal(path: string): JournalRecord[] | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  const parsed = z.array(recordSchema).safeParse(text.records)
  if (!parsed.success) {
    const [place = 0, ...field] = parsed.error.issues[0]?.path ?? []
    throw new JournalDamage(`its line ${Number(place) + 1} has no valid ${field.join('.') || 'content'}`)
  }
  verifySequence(parsed.data)
  verifyBehind(text)
  return parsed.data
}

/**
 * Returns the changes that were announced after a torn record. None of them was made, unless a damaged disk tore that
 * record later.
 */
export function readUnprovenChanges(path: string): AnnouncedChange[] {
  const { records = [], behind = [] } = readText(path) ?? {}
  return recordsIn(behind).flatMap((record, index) => numberedIn(record, records.length + 1 + index))
}

/**
 * Throws JournalDamage if a durable record after the torn one is followed by another record. The other record was
 * written only once the durable record and everything before it were on the disk, so the torn record was damaged later.
 */
function verifyBehind({ records, behind }: JournalText): void {
  const isProven = recordsIn(behind.slice(0, -1)).some(({ record }) => DURABLE.has(record))
  if (isProven) throw new JournalDamage(`its line ${records.length + 1} was written, and has been damaged since`)
}

function recordsIn(values: readonly unknown[]): JournalRecord[] {
  return values.flatMap(value => recordSchema.safeParse(value).data ?? [])
}

function readText(path: string): JournalText | undefined {
  const bytes = readBytes(path)
  return bytes && parseJournalText(bytes)
}

/**
 * A failed `open` does not show that there is a journal: the system may have lacked memory or descriptors for a moment.
 */
function readBytes(path: string): Buffer | undefined {
  try {
    return readFileNoFollow(path)
  } catch {
    return pathExistsSync(path) ? readFileNoFollow(path) : undefined
  }
}

/** Returns undefined if nothing is at the path. */
function readFileNoFollow(path: string): Buffer | undefined {
  try {
    const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      return readFileSync(fd)
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}
