import { close, mkdtempSync, openSync, rmdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { type OpenDirectory, withDirectorySync } from './open-directory.ts'
import { toHostError } from './system-errors.ts'

export interface PrivateFile {
  readonly fd: number
  /**
   * May be called more than once. Does not wait until the system has reclaimed the space, because that takes a tenth of
   * a second for a large file.
   */
  close(): void
}

/**
 * Opens a file for private data, such as a download. Creates the file in a private directory (0700) below `parent`, and
 * then unlinks it. No other job can reach the file by name, and nothing is left behind, even if this process is killed
 * later. Throws DeploymentError `disk_full`, `host_not_writable` or `step_failed`.
 */
export function openPrivateFileSync(parent: string): PrivateFile {
  try {
    const path = mkdtempSync(join(parent, 'hub-deploy-'))
    try {
      const fd = withDirectorySync(path, openUnnamedSync)
      return closeableOnce(fd)
    } finally {
      rmdirSync(path)
    }
  } catch (error) {
    throw toHostError(error, `creating a private file in ${parent}`)
  }
}

/** Closes the descriptor only once, because its number may soon be another file's. */
function closeableOnce(fd: number): PrivateFile {
  let isOpen = true
  return {
    fd,
    close() {
      if (isOpen) close(fd, () => {})
      isOpen = false
    },
  }
}

/**
 * Uses the directory's descriptor: another user who owns the temporary folder could replace the directory with a
 * symlink.
 */
function openUnnamedSync(directory: OpenDirectory): number {
  const path = directory.entry('artifact')
  const fd = openSync(path, 'wx+', 0o600)
  unlinkSync(path)
  return fd
}
