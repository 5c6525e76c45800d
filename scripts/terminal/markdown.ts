import { lexer, type Token, type Tokens } from 'marked'
import { styled, tableLines, wrapped } from './screen.ts'

const ALERT = /^\[!(\w+)\]\s*/
const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: ' ' }

/** Returns the lines of a job summary for a terminal: its content with every `<details>` open. */
export function markdownLines(markdown: string): string[] {
  return blockLines(lexer(markdown))
}

function blockLines(tokens: readonly Token[]): string[] {
  const blocks = tokens.map(linesOf).filter(lines => lines.length > 0)
  return blocks.flatMap((lines, index) => (index === 0 ? lines : ['', ...lines]))
}

function linesOf(token: Token): string[] {
  switch (token.type) {
    case 'heading':
      return [styled('bold', inline(token.tokens))]
    case 'paragraph':
    case 'text':
      return inline(token.tokens ?? [token])
        .split('\n')
        .flatMap(line => wrapped(line))
    case 'blockquote':
      return quoteLines(token as Tokens.Blockquote)
    case 'table':
      return tableOf(token as Tokens.Table)
    case 'list':
      return (token as Tokens.List).items.flatMap(item => indented(blockLines(item.tokens), '- '))
    case 'code':
      return indented(plain((token as Tokens.Code).text).split('\n'), '  ')
    case 'html':
      return withoutTags(token.raw)
        .split('\n')
        .flatMap(line => (line.trim() === '' ? [] : [styled('dim', line.trim())]))
    default:
      return []
  }
}

/** Indents a quotation. Starts an alert (`> [!WARNING]`) with its kind instead. */
function quoteLines({ text }: Tokens.Blockquote): string[] {
  const kind = ALERT.exec(text)?.[1]
  const lines = blockLines(lexer(text.replace(ALERT, '')))
  if (kind === undefined) return indented(lines, '  ')
  const [first = '', ...others] = lines
  const title = `${kind.charAt(0)}${kind.slice(1).toLowerCase()}: `
  return [`${styled(kind === 'NOTE' ? 'cyan' : 'yellow', title)}${first}`, ...others]
}

/** Leaves out an empty heading. */
function tableOf({ header, rows }: Tokens.Table): string[] {
  const cells = (row: readonly Tokens.TableCell[]): string[] => row.map(({ tokens }) => inline(tokens))
  const heading = cells(header)
  const shown = rows.map(cells)
  if (heading.every(cell => cell === '')) return tableLines(shown)
  return tableLines([heading.map(cell => (cell === '' ? '' : styled('underline', cell))), ...shown])
}

function indented(lines: readonly string[], lead: string): string[] {
  return lines.map((line, index) => `${index === 0 ? lead : ' '.repeat(lead.length)}${line}`)
}

function inline(tokens: readonly Token[] = []): string {
  return tokens.map(inlineOf).join('')
}

function inlineOf(token: Token): string {
  switch (token.type) {
    case 'strong':
      return styled('bold', inline(token.tokens))
    case 'em':
    case 'del':
      return inline(token.tokens)
    case 'codespan':
      return styled('cyan', plain(token.text))
    case 'link':
      return `${inline(token.tokens)} (${plain(token.href)})`
    case 'br':
      return '\n'
    case 'html':
      return withoutTags(token.raw)
    default:
      if ('tokens' in token && token.tokens !== undefined) return inline(token.tokens)
      return plain('text' in token ? token.text : token.raw)
  }
}

function withoutTags(html: string): string {
  const text = html
    .replace(/<br\s*\/?>/gi, '\n')
    .replace(/<\/?code>/gi, '`')
    .replace(/<[^>]*>/g, '')
  return plain(text)
}

/**
 * Turns entities into characters. A character that could control the terminal becomes a space, even if it is written as
 * an entity.
 */
function plain(text: string): string {
  return text
    .replace(/&(?:#(\d+)|#x([\da-f]+)|(\w+));/gi, (entity, decimal, hex, name) => {
      if (name !== undefined) return ENTITIES[name] ?? entity
      const code = Number.parseInt(decimal ?? hex, decimal === undefined ? 16 : 10)
      return code <= 0x10ffff ? String.fromCodePoint(code) : entity
    })
    .replace(/[^\P{Cc}\n]|\p{Cf}/gu, ' ')
}
