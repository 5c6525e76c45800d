import { DeployError, DeploymentError, errnoOf } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'

/** Whether the operating system refused something, as opposed to an error of this program. */
export function isSystemError(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && 'errno' in error
}

/**
 * A system error told as an operator needs it: `disk_full`, `host_not_writable`, else `step_failed`, naming what was
 * being done. A DeployError passes as it is.
 */
export function toHostError(error: unknown, doing: string): DeployError {
  if (error instanceof DeployError) return error
  const errno = errnoOf(error)
  switch (errno) {
    case 'ENOSPC':
    case 'EDQUOT':
      return new DeploymentError(
        'disk_full',
        `No space left while ${doing} (${errno}): free some space or inodes and run again.`,
        {
          cause: error,
        },
      )
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return new DeploymentError(
        'host_not_writable',
        `Not permitted while ${doing} (${errno}): give the runner's user write access to the project root and everything in it.`,
        { cause: error },
      )
    default: {
      const found = error instanceof Error ? error.message : String(error)
      return new DeploymentError('step_failed', `Failed while ${doing}: ${cleanForeignText(found)}.`, { cause: error })
    }
  }
}
