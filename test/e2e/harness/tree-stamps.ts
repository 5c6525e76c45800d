import { lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/**
 * The stamps of a path and of everything below it: inode, links, owner, mode, size and times. Any change alters at
 * least one of these values.
 */
export function stampsOf(root: string): Record<string, string> {
  const below = readdirSync(root, { recursive: true, encoding: 'utf8' })
  return Object.fromEntries(['.', ...below].toSorted().map(path => [path, stampOf(join(root, path))]))
}

function stampOf(path: string): string {
  const { ino, nlink, uid, gid, mode, size, mtimeNs, ctimeNs } = lstatSync(path, { bigint: true })
  return [ino, nlink, uid, gid, mode, size, mtimeNs, ctimeNs].join(' ')
}
