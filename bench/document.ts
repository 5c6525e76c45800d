import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const PAGE = join(import.meta.dirname, '../docs/performance.md')

/**
 * Replaces the text between `<!-- section -->` and `<!-- /section -->` in docs/performance.md. Throws if the page has
 * no such markers.
 */
export function writeSection(section: string, text: string): void {
  writeFileSync(PAGE, replaceSection(readFileSync(PAGE, 'utf8'), section, text))
}

export function replaceSection(page: string, section: string, text: string): string {
  const [open, close] = [`<!-- ${section} -->`, `<!-- /${section} -->`]
  const start = page.indexOf(open)
  const end = page.indexOf(close, start)
  if (start < 0 || end < 0) throw new Error(`The page has no ${open} followed by ${close}: add both markers.`)
  return `${page.slice(0, start + open.length)}\n\n${text}\n\n${page.slice(end)}`
}
