import { MAX_PATH_BYTES, MAX_PATH_LEVELS } from '../limits.ts'
import { unsafeEntry } from './archive-entry.ts'

/** What an extraction is going to create at a path of its tree; undefined for nothing. */
export type TreeLookup = (path: string) => 'file' | 'directory' | 'symlink' | undefined

export interface PlannedSymlink {
  /** In the flattened tree. */
  readonly path: string
  readonly target: string
}

const FORBIDDEN_CHARACTER = /[\\\p{Cc}]/u
const DRIVE_LETTER = /^[A-Za-z]:/

/**
 * Vouches for a symlink: its target is relative, stays inside the tree at every step, passes through no other symlink
 * and ends at a file or directory of the archive (contract 4.3, rule 5). Throws ArchiveError `unsafe_archive`.
 */
export function verifySymlink(symlink: PlannedSymlink, typeAt: TreeLookup): void {
  const problem = targetTextProblem(symlink.target) ?? walkProblem(symlink, typeAt)
  if (problem !== undefined) throw unsafeEntry(symlink.path, `is a symlink ${problem}`)
}

function targetTextProblem(target: string): string | undefined {
  if (target === '') return 'without a target'
  if (target.startsWith('/') || DRIVE_LETTER.test(target)) return 'to an absolute path'
  if (FORBIDDEN_CHARACTER.test(target)) return 'with a backslash or control character in its target'
  if (Buffer.byteLength(target) > MAX_PATH_BYTES) return `with a target of more than ${MAX_PATH_BYTES} bytes`
  return undefined
}

function walkProblem({ path, target }: PlannedSymlink, typeAt: TreeLookup): string | undefined {
  const steps = target.split('/')
  if (steps.length > MAX_PATH_LEVELS) return `with a target of more than ${MAX_PATH_LEVELS} components`
  const at = path.split('/').slice(0, -1)
  let type: ReturnType<TreeLookup> = 'directory'
  for (const step of steps) {
    if (type !== 'directory') return stopProblem(type)
    if (step === '..' && at.length === 0) return 'that points out of the archive'
    walk(at, step)
    type = at.length === 0 ? 'directory' : typeAt(at.join('/'))
  }
  return type === 'directory' || type === 'file' ? undefined : stopProblem(type)
}

function walk(at: string[], step: string): void {
  if (step === '..') at.pop()
  else if (step !== '' && step !== '.') at.push(step)
}

function stopProblem(type: ReturnType<TreeLookup>): string {
  if (type === 'symlink') return 'that passes through another symlink'
  return type === 'file' ? 'that uses a file as a directory' : 'to something that the archive does not contain'
}
