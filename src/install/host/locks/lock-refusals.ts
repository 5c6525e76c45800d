import { DeploymentError, errnoOf } from '../../../core/errors.ts'

/** Refuses what is at a path of the lock and is not a regular file: nobody but us writes there, so somebody interfered. */
export function notAFile(path: string): DeploymentError {
  return new DeploymentError(
    'unsafe_host',
    `${path} is not a regular file, but this action keeps its lock there. Find out what put it there, and remove it while no deployment runs.`,
  )
}

/** The error of an `open` without following symlinks: `notAFile` where it says that there is no regular file. */
export function toOpenError(path: string, error: unknown): unknown {
  return NOT_A_FILE.has(errnoOf(error) ?? '') ? notAFile(path) : error
}

/** Of a symlink, a directory, a socket, a device without a driver. */
const NOT_A_FILE: ReadonlySet<string> = new Set(['ELOOP', 'EISDIR', 'ENXIO', 'ENODEV'])
