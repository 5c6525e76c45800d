import { formatLine } from '../../../../src/install/transaction/journal/journal-line.ts'

/** A journal of these records, followed by a torn one and room for more. */
export function journalText(records: readonly object[], torn = ''): string {
  return `${records.map((record, index) => formatLine(index + 1, record)).join('')}${torn}`.padEnd(64 * 1024)
}
