import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { modeAndSize } from '../terminal/file-tree.ts'

/** Returns the path, mode, size and SHA-256 of each file below the folders that exist. Equal texts mean equal files. */
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

function fileLine(path: string): string {
  return `${path} ${modeAndSize(path)} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`
}
