import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const ROOT = join(import.meta.dirname, '..')

/** The path of every page that people read, relative to the repository. */
export const PAGES: readonly string[] = [
  ...pagesBelow('.', false),
  ...folders().flatMap(folder => pagesBelow(folder, false)),
  ...pagesBelow('docs', true),
  ...pagesBelow('examples', true),
]

/** A fenced block of a page. */
export interface Block {
  readonly page: string
  /** The line of the opening fence. */
  readonly line: number
  /** The nearest heading above the block. */
  readonly section: string
  /** The word after the fence; empty if there is none. */
  readonly language: string
  /** The text without the indentation of its fence. */
  readonly text: string
}

/** All fenced blocks of these pages, in order; of all pages if none is named. */
export function blocksOf(...pages: readonly string[]): Block[] {
  return (pages.length === 0 ? PAGES : pages).flatMap(page => [...scan(page)])
}

/** The headings of a page. A line in a block is never a heading. */
export function headingsOf(page: string): string[] {
  return [...withoutBlocks(page).matchAll(/^#+ (.+)$/gm)].map(([, title]) => title as string)
}

/** A page without its fenced blocks. */
export function withoutBlocks(page: string): string {
  return readPage(page).replace(/^ *```[^\n]*\n[\s\S]*?^ *```$/gm, '')
}

export function readPage(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8')
}

function* scan(page: string): Generator<Block> {
  const lines = readPage(page).split('\n')
  let section = ''
  for (let at = 0; at < lines.length; at++) {
    section = /^#+ (.+)$/.exec(lines[at] ?? '')?.[1] ?? section
    const fence = /^( *)```(.*)$/.exec(lines[at] ?? '')
    if (fence === null) continue
    const [, indent = '', language = ''] = fence
    const end = lines.indexOf(`${indent}\`\`\``, at + 1)
    if (end < 0) throw new Error(`${page}:${at + 1}: the block has no end.`)
    const text = lines.slice(at + 1, end).map(line => `${line.slice(indent.length)}\n`)
    yield { page, line: at + 1, section, language, text: text.join('') }
    at = end
  }
}

/** The folders of the actions. */
function folders(): string[] {
  const entries = readdirSync(ROOT, { withFileTypes: true }).filter(entry => entry.isDirectory())
  return entries.map(entry => entry.name).filter(name => existsSync(join(ROOT, name, 'action.yml')))
}

function pagesBelow(folder: string, recursive: boolean): string[] {
  const names = readdirSync(join(ROOT, folder), { recursive, encoding: 'utf8' }).toSorted()
  return names.filter(name => name.endsWith('.md')).map(name => join(folder, name))
}
