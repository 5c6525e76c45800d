import { randomUUID } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { toHostError } from './system-errors.ts'
import { removeTree } from './trees/remove-tree.ts'

const NAME = /^hub-deploy-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The path of a private folder below `parent`, which does not exist yet: what may have to remove it must know it first. */
export function namePrivateFolder(parent: string): string {
  return join(parent, `hub-deploy-${randomUUID()}`)
}

/** Makes the folder, 0700. Throws DeploymentError `disk_full` or `host_not_writable`. */
export function makePrivateFolderSync(path: string): void {
  try {
    mkdirSync(path, 0o700)
  } catch (error) {
    throw toHostError(error, `making a folder in ${dirname(path)}`)
  }
}

/**
 * Removes a private folder with everything in it, as `removeTree` does, if it is there. Does nothing for a path that
 * `namePrivateFolder` does not make below this parent.
 */
export async function removePrivateFolder(parent: string, path: string): Promise<void> {
  const name = path.slice(dirname(path).length + 1)
  if (resolve(dirname(path)) === resolve(parent) && NAME.test(name)) await removeTree(path)
}
