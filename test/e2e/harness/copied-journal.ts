import { lstatSync, readFileSync, writeFileSync } from 'node:fs'
import { parseJournalText } from '../../../src/install/transaction/journal/journal-line.ts'
import type { JournalRecord } from '../../../src/install/transaction/journal/journal-record.ts'
import { journalText } from '../../install/transaction/journal/journal-text.ts'

/**
 * Rewrites the journal of a copied host: names the inodes and times of the copies, and a host id if one is given. The
 * copy of the file or folder with an inode is at the path that `copyOf` returns.
 */
export function rewriteCopiedJournal(journal: string, copyOf: (ino: string) => string, hostId?: string): void {
  const { records } = parseJournalText(readFileSync(journal))
  const rewritten: JournalRecord[] = records.map(record =>
    JSON.parse(JSON.stringify(record), (key, value) => {
      if (key === 'host_id') return hostId ?? value
      return typeof value?.ino === 'string' ? { ...value, ...identityOf(copyOf(value.ino)) } : value
    }),
  )
  writeFileSync(journal, journalText(rewritten))
}

/** The identity that a journal gives to an object that is moved. */
function identityOf(path: string): { ino: string; times: string } {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false })
  return stat === undefined
    ? { ino: '0', times: '0 0' }
    : { ino: String(stat.ino), times: `${stat.mtimeNs} ${stat.birthtimeNs}` }
}
