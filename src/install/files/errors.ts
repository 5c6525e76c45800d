import { lstatSync, type Stats } from 'node:fs'
import { dirname } from 'node:path'
import { DeployError, DeploymentError, errnoOf } from '../../core/errors.ts'
import { asSentence, cleanForeignText } from '../../core/text.ts'

/** True if the operating system reported the error, as opposed to an error in this program. */
export function isSystemError(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && 'errno' in error
}

/**
 * Turns a system error into an error for an operator: `disk_full` or `host_not_writable`, otherwise `step_failed`. The
 * message says what was being done. A DeployError is returned unchanged.
 */
export function toHostError(error: unknown, doing: string): DeployError {
  if (error instanceof DeployError) return error
  const errno = errnoOf(error)
  switch (errno) {
    case 'ENOSPC':
    case 'EDQUOT':
      return new DeploymentError(
        'disk_full',
        `No space left while ${doing} (${errno}): free some space or inodes${errno === 'EDQUOT' ? ", or raise the quota of the runner's user," : ''} and run again.`,
        { cause: error },
      )
    case 'EACCES':
    case 'EPERM':
      return new DeploymentError(
        'host_not_writable',
        `Not permitted while ${doing} (${errno})${usersOf(error)}: give the runner's user access there (in the project root, write access to everything)${errno === 'EPERM' ? ', and check with lsattr that nothing was made immutable' : ''}.`,
        { cause: error },
      )
    case 'EROFS':
      return new DeploymentError(
        'host_not_writable',
        `Failed while ${doing} (${errno}): the file system is mounted read-only. Mount it writable, or, if the path is in the project root, correct project-root.`,
        { cause: error },
      )
    default: {
      const found = error instanceof Error ? error.message : String(error)
      const message = `Failed while ${doing}: ${asSentence(cleanForeignText(found))}`
      return new DeploymentError('step_failed', message, { cause: error })
    }
  }
}

/** Like `toHostError`, for work in the runner's temporary folder: `host_not_writable` if the folder is absent. */
export function toTemporaryError(error: unknown, folder: string): DeployError {
  const errno = errnoOf(error)
  if (errno !== 'ENOENT' && errno !== 'ENOTDIR') return toHostError(error, `working in ${folder}`)
  return new DeploymentError(
    'host_not_writable',
    `The runner's temporary folder ${cleanForeignText(folder)} is not a folder (${errno}): create it, or correct RUNNER_TEMP.`,
    { cause: error },
  )
}

/**
 * Names the user who was refused, and the owner of the path. If the path cannot be examined, names the owner of its
 * directory instead.
 */
function usersOf(error: unknown): string {
  const uid = process.getuid?.()
  if (uid === undefined) return ''
  const path = error instanceof Error && 'path' in error && typeof error.path === 'string' ? error.path : undefined
  return `; this runner runs as uid ${uid}${path === undefined ? '' : ownerOf(path)}`
}

function ownerOf(path: string): string {
  for (const candidate of [path, dirname(path)]) {
    const found = tryLstatSync(candidate)
    if (found !== undefined) return `, and ${cleanForeignText(candidate)} belongs to uid ${found.uid}`
  }
  return ''
}

/** Returns undefined if nothing is at the path, or if this user has no access. */
function tryLstatSync(path: string): Stats | undefined {
  try {
    return lstatSync(path)
  } catch {
    return undefined
  }
}
