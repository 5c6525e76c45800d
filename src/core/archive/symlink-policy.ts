import { MAX_PATH_BYTES, MAX_PATH_LEVELS } from '../limits.ts'
import { unsafeEntry } from './archive-entry.ts'

/** What is at a path of the tree that an extraction is going to make; undefined for nothing. */
export type TreeLookup = (path: string) => 'file' | 'directory' | 'symlink' | undefined

const FORBIDDEN_CHARACTER = /[\\\p{Cc}]/u
const DRIVE_LETTER = /^[A-Za-z]:/

/**
 * Vouches for a symlink at `path` of the flattened tree: its target is relative, stays inside the tree at every step,
 * passes through no other symlink and ends at a file or directory that the archive brings (contract 4.3, rule 5).
 * Throws ArchiveError `unsafe_archive`.
 */
export function verifySymlink(path: string, target: string, typeAt: TreeLookup): void {
  const problem = targetTextProblem(target) ?? walkProblem(path, target, typeAt)
  if (problem !== undefined) throw unsafeEntry(path, `is a symlink ${problem}`)
}

function targetTextProblem(target: string): string | undefined {
  if (target === '') return 'without a target'
  if (target.startsWith('/') || DRIVE_LETTER.test(target)) return 'to an absolute path'
  if (FORBIDDEN_CHARACTER.test(target)) return 'with a backslash or control character in its target'
  if (Buffer.byteLength(target) > MAX_PATH_BYTES) return `with a target of more than ${MAX_PATH_BYTES} bytes`
  return undefined
}

function walkProblem(path: string, target: string, typeAt: TreeLookup): string | undefined {
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
  return type === 'file' ? 'that takes a file for a directory' : 'to something that the archive does not hold'
}
