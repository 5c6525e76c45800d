import { createHash } from 'node:crypto'
import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A folder drawn as a tree, one line an entry; files with their mode and size. */
export function drawTree(folder: string, indent = ''): string[] {
  const entries = readdirSync(folder, { withFileTypes: true }).toSorted((a, b) => (a.name < b.name ? -1 : 1))
  return entries.flatMap((entry, index) => {
    const isLast = index === entries.length - 1
    const path = join(folder, entry.name)
    const lead = `${indent}${isLast ? '└─ ' : '├─ '}${entry.name}`
    if (!entry.isDirectory()) return [`${lead}  (${describeFile(path)})`]
    return [`${lead}/`, ...drawTree(path, `${indent}${isLast ? '   ' : '│  '}`)]
  })
}

/** Each file below the folders that are there, with its mode and the SHA-256 of its bytes; equal texts mean equal files. */
export function fingerprint(folders: readonly string[]): string {
  return folders
    .filter(folder => existsSync(folder))
    .flatMap(listFiles)
    .map(describeBytes)
    .join('\n')
}

function listFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => join(entry.parentPath, entry.name))
    .toSorted()
}

function describeFile(path: string): string {
  const { mode, size } = lstatSync(path)
  return `${(mode & 0o777).toString(8).padStart(4, '0')}, ${size} bytes`
}

function describeBytes(path: string): string {
  return `${path} ${describeFile(path)} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`
}
