import { constants } from 'node:fs'
import { open } from './direct-fs.ts'

/**
 * The text of a regular file of at most `maxBytes`, undefined for anything else; never waits for the other end of a pipe.
 * `flags` are added to those of the open. Throws the system's error when it cannot be opened or read.
 */
export async function readSmallFile(path: string, maxBytes: number, flags = 0): Promise<string | undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | flags)
  try {
    const stat = await file.stat()
    return stat.isFile() && stat.size <= maxBytes ? (await file.readFile()).toString('utf8') : undefined
  } finally {
    await file.close()
  }
}
