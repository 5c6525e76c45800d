import { constants, copyFile, link, open, rm } from 'node:fs/promises'

/** The errors of file systems without hard links, such as exFAT and many network shares. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'])

/**
 * Makes a complete file appear at a second path on the same file system. Rejects with EEXIST if that path is taken. The
 * file appears complete or not at all, except on a file system without hard links: there, a crash may leave part of the
 * file.
 */
export async function placeNew(written: string, target: string, linkFile = link): Promise<void> {
  try {
    await linkFile(written, target)
  } catch (error) {
    if (!NO_LINKS.has((error as NodeJS.ErrnoException).code ?? '')) throw error
    await copyNew(written, target)
  }
}

async function copyNew(written: string, target: string): Promise<void> {
  const file = await open(target, 'wx', 0o600)
  try {
    await copyFile(written, target, constants.COPYFILE_FICLONE)
    await file.sync()
  } catch (error) {
    await rm(target, { force: true })
    throw error
  } finally {
    await file.close()
  }
}
