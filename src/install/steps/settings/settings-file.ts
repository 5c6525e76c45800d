import { DeploymentError, errnoOf } from '../../../core/errors.ts'
import { MAX_SMALL_FILE_BYTES } from '../../../core/limits.ts'
import { readSmallFileSync } from '../../files/read-small-file.ts'

export const NOT_A_SMALL_FILE = `is not a regular file of at most ${MAX_SMALL_FILE_BYTES} bytes`

/**
 * Reads the host's own settings; their path may be a link to another file of the operator. Throws DeploymentError
 * `step_failed` if the file is not a regular file, is too large, or cannot be read.
 */
export function readSettings(path: string): string {
  try {
    const text = readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
    if (text !== undefined) return text
  } catch (error) {
    const found = errnoOf(error) === 'ENOENT' ? 'is a symlink to nothing' : `cannot be read (${errnoOf(error)})`
    throw unusableSettings(path, found)
  }
  throw unusableSettings(path, NOT_A_SMALL_FILE)
}

function unusableSettings(path: string, found: string): DeploymentError {
  return new DeploymentError('step_failed', `The settings file ${path} ${found}: repair or remove it.`)
}
