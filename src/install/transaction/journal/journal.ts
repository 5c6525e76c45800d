import { unlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { errnoOf } from '../../../core/errors.ts'
import { syncDirectory } from '../../files/durable-files.ts'
import { JournalFile, writeNewJournal } from './journal-file.ts'
import { formatLine } from './journal-line.ts'
import { type BeginRecord, DURABLE, type JournalRecord, OF_UNDO, REQUIRED } from './journal-record.ts'
import { readJournal } from './read-journal.ts'
import { type Redact, redactRecord } from './redaction.ts'

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

/** Opens a dead run's journal to append after its last complete record. Throws as `readJournal` does. */
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
