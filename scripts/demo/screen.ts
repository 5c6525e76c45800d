import { styleText } from 'node:util'

/** A new chapter of the story. */
export function showChapter(title: string, ...sentences: string[]): void {
  print('', styleText('bold', `━━━ ${title} ${'━'.repeat(Math.max(0, 92 - title.length))}`), ...sentences)
}

/**
 * A titled block. Its lines stand behind a bar, so that a runner which runs this program takes none of them for a command
 * of its own.
 */
export function showBlock(title: string, lines: readonly string[]): void {
  print('', styleText('bold', title), ...lines.map(line => `│ ${line}`.trimEnd()))
}

/** What was checked, and held. */
export function showVerified(sentence: string): void {
  print(`✔ ${sentence}`)
}

export function showTable(title: string, rows: readonly (readonly string[])[]): void {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map(row => row[column]?.length ?? 0)))
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')
  showBlock(
    title,
    rows.map(row => line(row).trimEnd()),
  )
}

function print(...lines: string[]): void {
  process.stdout.write(`${lines.join('\n')}\n`)
}
