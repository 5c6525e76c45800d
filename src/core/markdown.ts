import { cleanForeignText } from './foreign-text.ts'

const MAX_CELL_CHARS = 1500

/** Foreign text as Markdown that only shows it, on one line, and makes no link of a bare URL. */
export function cell(text: string): string {
  return cellOf(text, MAX_CELL_CHARS)
}

/** The same, cut at `maxChars`: for tables of many rows. */
export function cellOf(text: string, maxChars: number): string {
  return cleanForeignText(text, maxChars).replace(
    /[\\`*_{}[\]<>|#!~&@$]|:(?=\/\/)|(?<=www)\./gi,
    character => `&#${character.codePointAt(0)};`,
  )
}

/** The same as code. */
export function code(text: string, maxChars: number = MAX_CELL_CHARS): string {
  return `<code>${cellOf(text, maxChars)}</code>`
}

/** A sentence in which backticks mark code; shows anything else as it is. */
export function words(text: string): string {
  const plain = (part: string): string => `${/^\s/.test(part) ? ' ' : ''}${cell(part)}${/\s$/.test(part) ? ' ' : ''}`
  return text
    .split('`')
    .map((part, index) => (index % 2 === 0 ? plain(part) : code(part)))
    .join('')
}

/** A table of cells that are Markdown already. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

/** A link to an address that is nothing but one; the text alone for any other. */
export function link(text: string, url: string | null): string {
  return url !== null && /^https?:\/\/[\w.:/%+-]{1,500}$/.test(url) ? `[${text}](${url})` : text
}

/** A highlighted block of lines that are Markdown already; several become a list. */
export function alert(kind: 'NOTE' | 'WARNING' | 'CAUTION', lines: readonly string[]): string {
  const items = lines.length === 1 ? lines : lines.map(line => `- ${line}`)
  return [`[!${kind}]`, ...items].map(line => `> ${line}`).join('\n')
}

/** A block of Markdown that a reader opens. */
export function details(title: string, blocks: readonly string[]): string {
  return [`<details><summary>${title}</summary>`, ...blocks, '</details>'].join('\n\n')
}
