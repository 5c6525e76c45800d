import type { Store } from '../store.ts'
import { type Command, DATA_OPTION, DATA_USAGE, withExistingStore } from './command.ts'
import { parseCommandLine } from './command-line.ts'

export interface List<T> {
  /** The words after `npm run hub --`. */
  readonly name: string
  readonly summary: string
  readonly heading: readonly string[]
  readonly find: (store: Store) => readonly T[]
  readonly toRow: (found: T) => readonly string[]
}

/** A command that prints a table of rows from the data folder, below a heading. */
export function listCommand<T>({ name, summary, heading, find, toRow }: List<T>): Command {
  return {
    summary,
    usage: `npm run hub -- ${name} [options]\n\n${DATA_USAGE}`,
    run: async args => {
      const { values } = parseCommandLine(args, DATA_OPTION)
      const found = await withExistingStore(values.data, find)
      console.log(formatTable([heading, ...found.map(toRow)]))
    },
  }
}

/** Rows of text in columns, for a terminal; the first row is the heading. */
function formatTable(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map(row => row[column]?.length ?? 0)))
  const lines = rows.map(row => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
  return lines.map(line => line.trimEnd()).join('\n')
}
