import { constants, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { isAccessible } from '../local/is-accessible.ts'

const SOURCES = ['/usr/lib/python3', '/usr/share', join(import.meta.dirname, '../node_modules')]
const TEXT_FILE = /\.(py|js|ts|md|txt|json|sh|h|c|css|xml|ya?ml|pl|pm)$/
const MAX_FILE_BYTES = 200_000
const SAMPLE_BYTES = 24_000_000

/**
 * Returns about 24 MB of code and prose from this machine's files, or all of it if there is less. The order is always
 * the same.
 */
export function readSampleText(): Buffer {
  const pieces: Buffer[] = []
  for (const [index, source] of SOURCES.filter(path => existsSync(path)).entries()) {
    const wanted = ((index + 1) * SAMPLE_BYTES) / SOURCES.length - sizeOf(pieces)
    collectText(source, wanted, pieces)
  }
  return Buffer.concat(pieces)
}

function collectText(folder: string, wanted: number, pieces: Buffer[]): void {
  let missing = wanted
  for (const path of listTextFiles(folder)) {
    if (missing <= 0) return
    const text = readFileSync(path)
    pieces.push(text)
    missing -= text.length
  }
}

/** Skips files that this user cannot read. */
function listTextFiles(folder: string): string[] {
  return listFiles(folder)
    .filter(path => TEXT_FILE.test(path) && isAccessible(path, constants.R_OK) && statSync(path).size <= MAX_FILE_BYTES)
    .toSorted()
}

function listFiles(folder: string): string[] {
  if (!isAccessible(folder, constants.R_OK)) return []
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return listFiles(path)
    return entry.isFile() ? [path] : []
  })
}

function sizeOf(pieces: readonly Buffer[]): number {
  return pieces.reduce((total, piece) => total + piece.length, 0)
}
