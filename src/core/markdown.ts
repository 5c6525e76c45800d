import { cleanForeignText } from './foreign-text.ts'

const MAX_CELL_CHARS = 1500

/** Foreign text as Markdown that only shows it, on one line, and makes no link of a bare URL. */
export function cell(text: string): string {
  return cellOf(text, MAX_CELL_CHARS)
}

/** The same, cut at `maxChars`: for tables of many rows. */
export function cellOf(text: string, maxChars: number): string {
  return cleanForeignText(text, maxChars).replace(
    /[\\`*_{}[\]<>|#!~&@]|:(?=\/\/)|(?<=www)\./gi,
    character => `&#${character.codePointAt(0)};`,
  )
}

/** The same as code. */
export function code(text: string): string {
  return `<code>${cell(text)}</code>`
}

/** A table of cells that are Markdown already. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}
