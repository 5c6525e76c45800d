import { isAscii } from 'node:buffer'
import { MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_LEVELS } from '../limits.ts'
import { unsafeEntry } from './archive-entry.ts'
import { platformNameProblem } from './platform-names.ts'

// `ignoreBOM` keeps a byte order mark in the text. If it were dropped, two different names could become equal.
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

const CONTROL_CHARACTER = /\p{Cc}/u
const DRIVE_LETTER = /^[A-Za-z]:/

/**
 * Decodes an entry's name as UTF-8 if the archive says so, otherwise as ASCII. Throws ArchiveError `unsafe_archive` for
 * other bytes.
 */
export function decodeEntryName(bytes: Buffer, encoding: 'utf-8' | 'ascii'): string {
  if (isAscii(bytes)) return bytes.toString('latin1')
  const shown = bytes.toString('utf8')
  if (encoding === 'ascii') throw unsafeEntry(shown, 'has a non-ASCII name that is not marked as UTF-8')
  const name = decodeUtf8(bytes)
  if (name === undefined) throw unsafeEntry(shown, 'has a name that is not valid UTF-8')
  return name
}

/** Decodes the target of the symlink `name`. Throws ArchiveError `unsafe_archive` if it is not valid UTF-8. */
export function decodeTarget(bytes: Buffer, name: string): string {
  const target = decodeUtf8(bytes)
  if (target === undefined) throw unsafeEntry(name, 'has a symlink target that is not valid UTF-8')
  return target
}

function decodeUtf8(bytes: Buffer): string | undefined {
  try {
    return strictUtf8.decode(bytes)
  } catch {
    return undefined
  }
}

/**
 * Returns the relative path of an entry's name, without a final `/`. Joined to a folder, the path is always below that
 * folder (contract 4.3, rule 5). Throws ArchiveError `unsafe_archive` for an empty name or component, `.` and `..`, a
 * leading `/`, a drive letter, backslashes, lone surrogates, and NUL and other control characters. Also refuses more
 * than 255 bytes in a component, 4,096 bytes or 64 levels in total, and names that the platform does not keep as they
 * are written.
 */
export function parseEntryName(name: string, platform: NodeJS.Platform): string {
  const path = name.endsWith('/') ? name.slice(0, -1) : name
  const components = path.split('/')
  const problem = pathProblem(path, components) ?? componentsProblem(components, platform)
  if (problem !== undefined) throw unsafeEntry(name, problem)
  return path
}

function pathProblem(path: string, components: string[]): string | undefined {
  if (path.startsWith('/')) return 'has an absolute path'
  if (path === '') return 'has an empty name'
  if (DRIVE_LETTER.test(path)) return 'has a path that starts with a drive letter'
  if (path.includes('\\')) return 'has a backslash in its path'
  if (!path.isWellFormed()) return 'has a path that is not valid Unicode'
  if (CONTROL_CHARACTER.test(path)) return 'has a control character in its path'
  if (isLongerThan(path, MAX_PATH_BYTES)) return `has a path of more than ${MAX_PATH_BYTES} bytes`
  if (components.length > MAX_PATH_LEVELS) return `is more than ${MAX_PATH_LEVELS} levels deep`
  return undefined
}

function componentsProblem(components: string[], platform: NodeJS.Platform): string | undefined {
  for (const component of components) {
    const problem = componentProblem(component) ?? platformNameProblem(component, platform)
    if (problem !== undefined) return problem
  }
  return undefined
}

function componentProblem(component: string): string | undefined {
  if (component === '') return 'has an empty component in its path'
  if (component === '.' || component === '..') return `has a "${component}" in its path`
  if (isLongerThan(component, MAX_NAME_BYTES)) return `has a name of more than ${MAX_NAME_BYTES} bytes`
  return undefined
}

/** Counts bytes only if the number of UTF-16 units does not decide: each unit takes 1 to 3 bytes of UTF-8. */
function isLongerThan(text: string, maxBytes: number): boolean {
  if (text.length * 3 <= maxBytes) return false
  return text.length > maxBytes || Buffer.byteLength(text) > maxBytes
}
