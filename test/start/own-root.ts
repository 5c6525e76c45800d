import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { temporaryDirectory } from '../install/temporary-directory.ts'

/** A project root with a `.hub-deploy/` that is ours alone, in a folder of its own. */
export function ownRoot(t: TestContext): { folder: string; root: string; own: string } {
  const folder = temporaryDirectory(t)
  const root = join(folder, 'app')
  const own = join(root, '.hub-deploy')
  mkdirSync(root, { mode: 0o755 })
  mkdirSync(own, { mode: 0o700 })
  return { folder, root, own }
}
