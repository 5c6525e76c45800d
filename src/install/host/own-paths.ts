import { join } from 'node:path'

/** The folder below a project root that is ours alone. */
export function ownFolderOf(projectRoot: string): string {
  return join(projectRoot, '.hub-deploy')
}

/** Where an action keeps its own code as Node.js has compiled it; `own` is the folder that is ours alone. */
export function compiledCodePath(own: string): string {
  return join(own, 'compiled')
}
