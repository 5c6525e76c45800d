import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'

/** Maps each path below a directory to `<mode> <content>`, `<mode> directory`, `<mode> special` or `-> <target>`. */
export function listTree(root: string, below = ''): Record<string, string> {
  const listing: Record<string, string> = {}
  for (const name of readdirSync(join(root, below))) {
    const path = join(below, name)
    listing[path] = describePath(join(root, path))
    if (listing[path].endsWith(' directory')) Object.assign(listing, listTree(root, path))
  }
  return listing
}

function describePath(path: string): string {
  const stat = lstatSync(path)
  if (stat.isSymbolicLink()) return `-> ${readlinkSync(path)}`
  const mode = (stat.mode & 0o7777).toString(8)
  if (stat.isDirectory()) return `${mode} directory`
  return stat.isFile() ? `${mode} ${readFileSync(path, 'latin1')}` : `${mode} special`
}
