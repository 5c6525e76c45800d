import { createHash } from 'node:crypto'
import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Draws a folder as a tree, one line for each entry; files have their mode and size. */
export function drawTree(folder: string, indent = ''): string[] {
  const entries = readdirSync(folder, { withFileTypes: true }).toSorted((a, b) => (a.name < b.name ? -1 : 1))
  return entries.flatMap((entry, index) => {
    const isLast = index === entries.length - 1
    const path = join(folder, entry.name)
    const lead = `${indent}${isLast ? '└─ ' : '├─ '}${entry.name}`
    if (!entry.isDirectory()) return [`${lead}  (${modeAndSize(path)})`]
    return [`${lead}/`, ...drawTree(path, `${indent}${isLast ? '   ' : '│  '}`)]
  })
}

/** The path, mode and SHA-256 of each file below the folders that exist. Equal texts mean equal files. */
export function fingerprint(folders: readonly string[]): string {
  return folders
    .filter(folder => existsSync(folder))
    .flatMap(listFiles)
    .map(fileLine)
    .join('\n')
}

function listFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => join(entry.parentPath, entry.name))
    .toSorted()
}

function modeAndSize(path: string): string {
  const { mode, size } = lstatSync(path)
  return `${(mode & 0o777).toString(8).padStart(4, '0')}, ${size} bytes`
}

function fileLine(path: string): string {
  return `${path} ${modeAndSize(path)} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`
}
