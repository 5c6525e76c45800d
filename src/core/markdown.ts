import { cleanForeignText } from './foreign-text.ts'

const MAX_CELL_CHARS = 1500

/**
 * Returns text from outside as one line of Markdown that shows just that text, without turning a bare URL into a link.
 */
export function cell(text: string): string {
  return cellOf(text, MAX_CELL_CHARS)
}

/** Like `cell`, but cuts the text at `maxChars`, for tables with many rows. */
export function cellOf(text: string, maxChars: number): string {
  return cleanForeignText(text, maxChars).replace(
    /[\\`*_{}[\]<>|#!~&@$]|:(?=\/\/)|(?<=www)\./gi,
    character => `&#${character.codePointAt(0)};`,
  )
}

/** Like `cellOf`, but formats the text as code. */
export function code(text: string, maxChars: number = MAX_CELL_CHARS): string {
  return `<code>${cellOf(text, maxChars)}</code>`
}

/** Returns a sentence as Markdown: text between backticks becomes code, and everything else is shown literally. */
export function words(text: string): string {
  const plain = (part: string): string => `${/^\s/.test(part) ? ' ' : ''}${cell(part)}${/\s$/.test(part) ? ' ' : ''}`
  return text
    .split('`')
    .map((part, index) => (index % 2 === 0 ? plain(part) : code(part)))
    .join('')
}

/** Builds a table of cells that are already Markdown. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

/** Builds a link if `url` is a plain http or https address; otherwise returns the text alone. */
export function link(text: string, url: string | null): string {
  return url !== null && /^https?:\/\/[\w.:/%+-]{1,500}$/.test(url) ? `[${text}](${url})` : text
}

/** Builds a highlighted block of lines that are already Markdown; several lines become a list. */
export function alert(kind: 'NOTE' | 'WARNING' | 'CAUTION', lines: readonly string[]): string {
  const items = lines.length === 1 ? lines : lines.map(line => `- ${line}`)
  return [`[!${kind}]`, ...items].map(line => `> ${line}`).join('\n')
}

/** Builds a block of Markdown that is closed until a reader opens it. */
export function details(title: string, blocks: readonly string[]): string {
  return [`<details><summary>${title}</summary>`, ...blocks, '</details>'].join('\n\n')
}
