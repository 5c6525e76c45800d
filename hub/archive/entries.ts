import { HubError } from '../errors.ts'

/** What hosts unpack by default (docs/contracts.md, "Limits, time-outs, retries"). */
export const MAX_ENTRIES = 100_000
export const MAX_EXTRACTED_BYTES = 2 * 1024 * 1024 * 1024
export const MAX_ARCHIVE_BYTES = 512 * 1024 * 1024
const MAX_NAME_BYTES = 255
const MAX_PATH_BYTES = 4096
const MAX_LEVELS = 64
const MAX_HOPS = 40

/** As it is in the archive: a directory's name may end with a slash. */
export interface ArchiveEntry {
  readonly name: string
  readonly type: 'file' | 'directory' | 'symlink' | 'other'
  /** Of a symlink. */
  readonly target?: string
}

/** What a host gets when it unpacks: by path, relative to where it unpacks. */
export type Tree = ReadonlyMap<string, ArchiveEntry>

/**
 * The tree that a host unpacks; without the only top-level directory, if `flattens` (contract 4.3, rule 5). Throws
 * HubError 400 for an archive that no host unpacks: with nothing in it, an unsafe name, a symlink that leads out, a
 * device, or two entries in one place.
 */
export function requireSafeTree(entries: readonly ArchiveEntry[], { flattens }: { flattens: boolean }): Tree {
  const listed = new Map<string, ArchiveEntry>()
  for (const entry of entries) {
    const path = requireSafeName(entry.name)
    if (entry.type === 'other') throw unsafe(entry.name, 'is neither a file, a directory nor a symlink')
    if (listed.has(path.normalize('NFC'))) throw unsafe(entry.name, 'is in the archive twice')
    listed.set(path.normalize('NFC'), entry)
  }
  for (const [path, { name }] of listed)
    for (const above of foldersAbove(path))
      if ((listed.get(above)?.type ?? 'directory') !== 'directory')
        throw unsafe(name, `is below ${above}, which is no directory`)
  if (listed.size === 0) throw new HubError(400, 'The archive contains nothing to publish: pack the files again.')
  const tree = flattens ? flattened(listed) : listed
  if (![...tree.values()].some(({ type }) => type !== 'directory'))
    throw new HubError(400, 'The archive contains no file: pack the files again.')
  for (const [path, entry] of tree) if (entry.type === 'symlink') requireInside(tree, path, entry)
  return tree
}

/** The file that a path names, also through symlinks; undefined if there is none. */
export function findFile(tree: Tree, path: string): ArchiveEntry | undefined {
  const found = follow(tree, { path: '', target: path })
  const entry = found === undefined ? undefined : tree.get(found)
  return entry?.type === 'file' ? entry : undefined
}

function requireSafeName(name: string): string {
  const path = name.replace(/\/$/, '')
  const parts = path.split('/')
  if (path === '') throw unsafe(name, 'has no name')
  if (path.startsWith('/') || /^[A-Za-z]:/.test(path)) throw unsafe(name, 'has an absolute path')
  if (/[\\\p{Cc}]/u.test(path)) throw unsafe(name, 'has a backslash or a control character in its path')
  if (parts.some(part => part === '' || part === '.' || part === '..'))
    throw unsafe(name, 'has an empty part, "." or ".." in its path')
  if (parts.some(part => Buffer.byteLength(part) > MAX_NAME_BYTES))
    throw unsafe(name, `has a name of more than ${MAX_NAME_BYTES} bytes`)
  if (Buffer.byteLength(path) > MAX_PATH_BYTES || parts.length > MAX_LEVELS)
    throw unsafe(name, `has a path of more than ${MAX_PATH_BYTES} bytes or ${MAX_LEVELS} levels`)
  return path
}

/** Code hosts put everything below one directory. */
function flattened(listed: Tree): Tree {
  const tops = new Set([...listed.keys()].map(path => path.split('/')[0] ?? ''))
  const [top = ''] = tops
  if (tops.size !== 1 || (listed.get(top)?.type ?? 'directory') !== 'directory') return listed
  return new Map(
    [...listed].filter(([path]) => path !== top).map(([path, entry]) => [path.slice(top.length + 1), entry]),
  )
}

function foldersAbove(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, at) => parts.slice(0, at + 1).join('/'))
}

function requireInside(tree: Tree, path: string, { name, target = '' }: ArchiveEntry): void {
  if (target === '' || target.startsWith('/') || /^[A-Za-z]:|[\\\p{Cc}]/u.test(target))
    throw unsafe(name, `is a symlink to ${JSON.stringify(target.slice(0, 100))}, which is no relative path`)
  if (follow(tree, { path, target }) === undefined)
    throw unsafe(
      name,
      `is a symlink to ${JSON.stringify(target.slice(0, 100))}, which leads out of the archive or in a circle`,
    )
}

/** Where a symlink leads in the end, if it never leaves the tree; it may lead to nothing. */
function follow(tree: Tree, from: { readonly path: string; readonly target: string }): string | undefined {
  const at = from.path.split('/').slice(0, -1)
  const steps = from.target.split('/').reverse()
  for (let hops = 0; steps.length > 0; ) {
    const step = steps.pop()
    if (step === '..' && at.length === 0) return undefined
    if (step === '..') at.pop()
    if (step === undefined || step === '' || step === '.' || step === '..') continue
    const entry = tree.get([...at, step].join('/').normalize('NFC'))
    if (entry?.type !== 'symlink') at.push(step)
    else if (++hops >= MAX_HOPS || entry.target?.startsWith('/')) return undefined
    else steps.push(...(entry.target ?? '').split('/').reverse())
  }
  return at.join('/').normalize('NFC')
}

function unsafe(name: string, problem: string): HubError {
  return new HubError(
    400,
    `No host unpacks this archive: ${JSON.stringify(name.slice(0, 200))} ${problem}. Correct it and pack it again.`,
  )
}
