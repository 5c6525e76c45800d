import { styleText } from 'node:util'

/** Starts a chapter of the demo. */
export function showChapter(title: string, ...sentences: string[]): void {
  print('', styleText('bold', `━━━ ${title} ${'━'.repeat(Math.max(0, 92 - title.length))}`), ...sentences)
}

/** Prints a titled block. A bar starts each line, so that a runner never mistakes one for a workflow command. */
export function showBlock(title: string, lines: readonly string[]): void {
  print('', styleText('bold', title), ...lines.map(line => `│ ${line}`.trimEnd()))
}

/** Prints a sentence that the demo has verified. */
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
