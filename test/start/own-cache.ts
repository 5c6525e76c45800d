import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { temporaryDirectory } from '../install/temporary-directory.ts'

/** Creates a cache, `base`, in a new folder. Only this process's user may use the folder `own` in the cache. */
export function ownCache(t: TestContext): { folder: string; base: string; own: string } {
  const folder = temporaryDirectory(t)
  const base = join(folder, '.cache')
  const own = join(base, 'hub-deploy')
  mkdirSync(base, { mode: 0o755 })
  mkdirSync(own, { mode: 0o700 })
  return { folder, base, own }
}
