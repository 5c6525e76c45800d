import { closeSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { HubError } from './errors.ts'

/**
 * Writes the file that the option `--out` names, and leaves nothing behind if that fails. Throws HubError 400 if the
 * file exists or cannot be written.
 */
export function writeNewFile(path: string, content: string | Uint8Array, mode = 0o666): void {
  const file = create(path, mode)
  try {
    writeFileSync(file, content)
  } catch (error) {
    rmSync(path, { force: true })
    throw notWritten(path, error)
  } finally {
    closeSync(file)
  }
}

function create(path: string, mode: number): number {
  try {
    return openSync(path, 'wx', mode)
  } catch (error) {
    throw notWritten(path, error)
  }
}

function notWritten(path: string, error: unknown): HubError {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'EEXIST')
    return new HubError(400, `${path} already exists and is not overwritten: choose another --out.`)
  return new HubError(
    400,
    `The file ${path} cannot be written (${code}): choose an --out in an existing folder that you can write to and that has free space.`,
  )
}
