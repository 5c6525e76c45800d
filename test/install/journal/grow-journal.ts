import { openJournal, startJournal } from '../../../src/install/journal/journal.ts'
import { factsOf } from '../prepared-host.ts'

/**
 * Announces 400 changes in a journal, which has to grow for them. Stops early if a change cannot be announced. Then
 * records the first change as undone. A test runs this under strace.
 */
const path = process.argv[2] as string
;(await startJournal(path, { record: 'begin', facts: factsOf(), report_address: null, keep_paths: [] })).close()
const journal = openJournal(path)
try {
  for (let count = 0; count < 400; count++)
    await journal.append({ record: 'change', change: { type: 'make_directory', path: 'plugins' } })
} catch (error) {
  console.log(String(error))
}
await journal.append({ record: 'undone', of: 2, was_made: false })
