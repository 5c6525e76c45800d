import { lstatSync, readFileSync, writeFileSync } from 'node:fs'
import { formatLine, parseJournalText } from '../../../src/install/journal/line.ts'
import type { JournalRecord } from '../../../src/install/journal/records.ts'

/** The text of a journal: these records, then a torn record, if there is one, and then padding. */
export function journalText(records: readonly object[], torn = ''): string {
  return `${records.map((record, index) => formatLine(index + 1, record)).join('')}${torn}`.padEnd(64 * 1024)
}

/**
 * Rewrites the journal of a copied host, so that it contains the inodes and times of the copies, and `hostId` if that
 * is given. `copyOf` takes an inode from the journal, and returns the path of the copy of that file or folder.
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

/** The identity that a journal records of a file or folder that is moved. */
function identityOf(path: string): { ino: string; times: string } {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false })
  return stat === undefined
    ? { ino: '0', times: '0 0' }
    : { ino: String(stat.ino), times: `${stat.mtimeNs} ${stat.birthtimeNs}` }
}
