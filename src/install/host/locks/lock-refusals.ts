import { DeploymentError, errnoOf } from '../../../core/errors.ts'

/**
 * Returns the error for a path of the lock that is not the expected kind of file: only this action writes there, so
 * another program or user interfered.
 */
export function notAFile(path: string, expected = 'a regular file'): DeploymentError {
  return new DeploymentError(
    'unsafe_host',
    `${path} is not ${expected}, but this action keeps its lock there. Find out which program or user put it there, and remove it while no deployment runs.`,
  )
}

/**
 * Returns `notAFile` if an `open` that follows no symlinks failed because the path is not a regular file. Otherwise
 * returns the error unchanged.
 */
export function toOpenError(path: string, error: unknown): unknown {
  return NOT_A_FILE.has(errnoOf(error) ?? '') ? notAFile(path) : error
}

/** The codes for a symlink, a directory, a socket, and a device without a driver. */
const NOT_A_FILE: ReadonlySet<string> = new Set(['ELOOP', 'EISDIR', 'ENXIO', 'ENODEV'])
