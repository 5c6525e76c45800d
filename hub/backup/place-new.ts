import { constants, copyFile, link, open, rm } from 'node:fs/promises'

/** The errors of file systems without hard links, such as exFAT and many network shares. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'])

/**
 * Gives a complete file a new name next to it. Rejects with EEXIST if the name is taken. The file appears complete or
 * not at all; if the file system has no hard links, a crash may leave a part of it.
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
