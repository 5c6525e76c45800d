import { formatLine } from '../../../../src/install/transaction/journal/journal-line.ts'

/** The text of a journal: these records, then a torn record, if there is one, and then padding. */
export function journalText(records: readonly object[], torn = ''): string {
  return `${records.map((record, index) => formatLine(index + 1, record)).join('')}${torn}`.padEnd(64 * 1024)
}
