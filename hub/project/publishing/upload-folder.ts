import { mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'

const PREFIX = 'upload-'
const DAY_MS = 86_400_000

/** Makes a private folder for one upload, on the disk that has room for artifacts. */
export async function newUploadFolder(dataDir: string): Promise<string> {
  return await mkdtemp(join(dataDir, PREFIX))
}

/** Removes what hubs that were killed have left. `now`: milliseconds since 1970. */
export async function removeOldUploads(dataDir: string, now: number): Promise<void> {
  for (const name of await readdir(dataDir)) {
    if (!name.startsWith(PREFIX)) continue
    const path = join(dataDir, name)
    const { mtimeMs = now } = (await stat(path).catch(() => undefined)) ?? {}
    if (mtimeMs < now - DAY_MS) await rm(path, { recursive: true, force: true })
  }
}
