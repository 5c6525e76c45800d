import { HubError } from '../errors.ts'
import { type ArchiveEntry, MAX_LEVELS, MAX_NAME_BYTES, MAX_PATH_BYTES, unsafe } from './archive-entry.ts'
import { childOf, EntryTree, type TreeNode } from './entry-tree.ts'
import { Symlinks } from './symlinks.ts'

/** The tree that a host creates from an archive. */
export interface SafeTree {
  /** Returns the file at this path, where any part may be a symlink; undefined if there is no file. */
  readonly fileAt: (path: string) => ArchiveEntry | undefined
}

/**
 * Returns the tree that a host unpacks. With `flattens`, drops the top-level directory if everything is below it
 * (contract 4.3, rule 5). Throws HubError 400 for an archive that no host unpacks: for example, one that has no file,
 * an unsafe name, a symlink that leads out, a device, or two entries in one place.
 */
export function requireSafeTree(entries: readonly ArchiveEntry[], options: { flattens: boolean }): SafeTree {
  if (entries.length === 0) throw new HubError(400, 'The archive contains nothing to publish: pack the files again.')
  const tree = new EntryTree()
  for (const entry of entries) {
    if (entry.type === 'other') throw unsafe(entry.name, 'is neither a file, a directory nor a symlink')
    const path = requireSafeName(entry)
    tree.add(path, entry)
  }
  if (entries.every(({ type }) => type === 'directory'))
    throw new HubError(400, 'The archive contains no file: pack the files again.')
  const top = tree.top(options)
  const symlinks = new Symlinks(top)
  for (const node of nodesBelow(top)) symlinks.endOf(node)
  return { fileAt: path => findFile(top, symlinks, path) }
}

function findFile(top: TreeNode, symlinks: Symlinks, path: string): ArchiveEntry | undefined {
  let at: TreeNode | undefined = top
  for (const name of path.split('/')) {
    const next: TreeNode | undefined = at === undefined ? undefined : childOf(at, name)
    at = next === undefined ? undefined : symlinks.endOf(next)
  }
  return at?.type === 'file' ? at.entry : undefined
}

function* nodesBelow(node: TreeNode): Generator<TreeNode> {
  const open = [node]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    yield next
    for (const child of next.children.values()) open.push(child)
  }
}

/** Returns the path without the slash that may end a directory's name. */
function requireSafeName({ name, type }: ArchiveEntry): string {
  const path = name.replace(/\/$/, '')
  if (path === '') throw unsafe(name, 'has no name')
  if (path !== name && type !== 'directory') throw unsafe(name, `is a ${type} with a slash at the end of its name`)
  if (path.startsWith('/') || /^[A-Za-z]:/.test(path)) throw unsafe(name, 'has an absolute path')
  if (/[\\\p{Cc}]/u.test(path)) throw unsafe(name, 'has a backslash or a control character in its path')
  const parts = path.split('/', MAX_LEVELS + 1)
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) throw unsafe(name, `has a path of more than ${MAX_PATH_BYTES} bytes`)
  if (parts.length > MAX_LEVELS) throw unsafe(name, `has a path of more than ${MAX_LEVELS} levels`)
  if (parts.some(part => part === '' || part === '.' || part === '..'))
    throw unsafe(name, 'has an empty part, "." or ".." in its path')
  if (parts.some(part => Buffer.byteLength(part) > MAX_NAME_BYTES))
    throw unsafe(name, `has a name of more than ${MAX_NAME_BYTES} bytes`)
  return path
}
