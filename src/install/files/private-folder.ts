import { randomUUID } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { toHostError } from './system-errors.ts'
import { removeTree } from './trees/remove-tree.ts'

const NAME = /^hub-deploy-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/**
 * Returns the path of a private folder below `parent` that does not exist yet. A process that may have to remove the
 * folder must know its path before the folder exists.
 */
export function namePrivateFolder(parent: string): string {
  return join(parent, `hub-deploy-${randomUUID()}`)
}

/** Creates the folder with mode 0700. Throws DeploymentError `disk_full`, `host_not_writable` or `step_failed`. */
export function makePrivateFolderSync(path: string): void {
  try {
    mkdirSync(path, 0o700)
  } catch (error) {
    throw toHostError(error, `making a folder in ${dirname(path)}`)
  }
}

/**
 * Removes a private folder, if it exists, with everything in it, as `removeTree` does. Does nothing for a path that
 * `namePrivateFolder` would not return for this parent.
 */
export async function removePrivateFolder(parent: string, path: string): Promise<void> {
  const name = path.slice(dirname(path).length + 1)
  if (resolve(dirname(path)) === resolve(parent) && NAME.test(name)) await removeTree(path)
}
