import { existsSync, realpathSync } from 'node:fs'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { UsageError } from '../../hub/errors.ts'
import type { Sources } from './sources.ts'

/**
 * Throws UsageError if the folders of the sources and of --root are the same, or if one contains the other. The secrets
 * in the folder of --root could then be published, or the sources could be mixed with the files of the hub and the
 * host. Resolves symlinks first.
 */
export function requireApart({ kind, folder }: Sources, named: string): void {
  const [from, root] = [realPathOf(folder), realPathOf(named)]
  if (!isWithin(from, root) && !isWithin(root, from)) return
  throw new UsageError(
    `The folder of --root, ${root}, and that of your ${kind}, ${from}, must not contain each other, so that nothing of the hub or the host is published as your ${kind}: name another folder with --root.`,
  )
}

/** The real path of a folder that may not exist yet. */
function realPathOf(path: string): string {
  const absolute = resolve(path)
  if (existsSync(absolute)) return realpathSync(absolute)
  return join(realPathOf(dirname(absolute)), basename(absolute))
}

function isWithin(path: string, folder: string): boolean {
  return join(path, sep).startsWith(join(folder, sep))
}
