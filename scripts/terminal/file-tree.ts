import { lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { cleanForeignText } from '../../src/core/foreign-text.ts'

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
