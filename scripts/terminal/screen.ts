import { lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters, styleText } from 'node:util'
import { cleanForeignText } from '../../src/core/text.ts'

const WIDTH = 100

/** A terminal gets symbols and lines; a file or another program gets plain text. */
const SYMBOLS = process.stdout.isTTY
  ? { good: '✔ ', bad: '✘ ', open: '▾ ', closed: '▸ ', bar: '│ ', rule: '─' }
  : { good: '', bad: '', open: '', closed: '', bar: '| ', rule: '-' }

/** Returns a symbol for a terminal; for any other output, its form in plain text, which may be empty. */
export function symbol(name: keyof typeof SYMBOLS): string {
  return SYMBOLS[name]
}

/** Text with a color or weight on a terminal that can show it. Respects `NO_COLOR` and `FORCE_COLOR`. */
export function styled(format: Parameters<typeof styleText>[0], text: string): string {
  return styleText(format, text)
}

export function print(...lines: string[]): void {
  process.stdout.write(lines.map(line => `${line}\n`).join(''))
}

/** Prints the heading of a section. */
export function printHeading(title: string): void {
  const rule = symbol('rule')
  print('', styled('bold', `${rule.repeat(3)} ${title} ${rule.repeat(Math.max(3, WIDTH - 5 - title.length))}`))
}

/** Prints lines that each start with a bar, so that a runner does not mistake any of them for a workflow command. */
export function printBlock(lines: readonly string[]): void {
  print(...lines.map(line => `${symbol('bar')}${line}`.trimEnd()))
}

/** Rows of text in columns; the last column is not padded. */
export function tableLines(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map(row => shownLength(row[column] ?? ''))))
  return rows.map(row =>
    row
      .map((cell, column) => padded(cell, widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

/** Wraps a text at spaces into lines of at most `width` characters. A longer word stays whole. */
export function wrapped(text: string, width: number = WIDTH): string[] {
  const lines = ['']
  for (const word of text.trimEnd().split(' ')) {
    const line = lines.at(-1) ?? ''
    if (line === '') lines[lines.length - 1] = word
    else if (shownLength(line) + 1 + shownLength(word) <= width) lines[lines.length - 1] = `${line} ${word}`
    else lines.push(word)
  }
  return lines
}

function padded(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - shownLength(text)))
}

function shownLength(text: string): number {
  return [...stripVTControlCharacters(text)].length
}

/**
 * Draws a folder as a tree, one line for each entry, with the mode and size of files. For a folder that is not open,
 * draws only its name.
 */
export function drawTree(folder: string, isOpen = (_path: string): boolean => true, indent = ''): string[] {
  const entries = readdirSync(folder, { withFileTypes: true }).toSorted((a, b) => (a.name < b.name ? -1 : 1))
  return entries.flatMap((entry, index) => {
    const isLast = index === entries.length - 1
    const path = join(folder, entry.name)
    const lead = `${indent}${isLast ? '└─ ' : '├─ '}${cleanForeignText(entry.name)}`
    if (!entry.isDirectory()) return [`${lead}  (${modeAndSize(path)})`]
    if (!isOpen(path)) return [`${lead}/ …`]
    return [`${lead}/`, ...drawTree(path, isOpen, `${indent}${isLast ? '   ' : '│  '}`)]
  })
}

/** `0644, 12 bytes` */
export function modeAndSize(path: string): string {
  const { mode, size } = lstatSync(path)
  return `${(mode & 0o777).toString(8).padStart(4, '0')}, ${size} bytes`
}
