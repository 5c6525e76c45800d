import { lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/**
 * The stamps of a path and everything below it, which any change would alter: inode, links, owner, mode, size and
 * times.
 */
export function stampsOf(root: string): Record<string, string> {
  const below = readdirSync(root, { recursive: true, encoding: 'utf8' })
  return Object.fromEntries(['.', ...below].toSorted().map(path => [path, stampOf(join(root, path))]))
}

function stampOf(path: string): string {
  const { ino, nlink, uid, gid, mode, size, mtimeNs, ctimeNs } = lstatSync(path, { bigint: true })
  return [ino, nlink, uid, gid, mode, size, mtimeNs, ctimeNs].join(' ')
}
