import { readdirSync, unlinkSync } from 'node:fs'
import { join, posix } from 'node:path'
import { z } from 'zod/mini'
import { treeDigest } from '../../core/trust/tree-digest.ts'
import { replaceFile } from '../files/durable-files.ts'
import type { ExtractedTree } from '../files/extracted-tree.ts'
import { FileDigester } from '../files/file-digester.ts'
import { hearSignals } from '../files/time-slice.ts'
import { pathExistsSync, type TreeEntry, walkTree } from '../files/tree-walk.ts'
import type { HostTree } from './keep-paths.ts'
import { type Layout, treeRecordPath } from './layout.ts'
import { readStateFileSync } from './state-file.ts'

const schema = z.lazy(() =>
  z.object({
    files: z.array(z.object({ path: z.string(), sha256: z.string(), size: z.number(), mode: z.number() })),
    symlinks: z.array(z.object({ path: z.string(), target: z.string() })),
  }),
)

/** Exactly what was installed, to compare later with what is there. Stored under its tree digest. */
export type TreeRecord = z.infer<typeof schema> & { digest: string }

/** How an installed tree differs from its record. */
export interface TreeDifference {
  /** Recorded, but not in the tree. */
  missing: string[]
  /** In the tree, but not recorded. */
  extra: string[]
  changed: string[]
}

/** The record of an extracted tree, without the keep-paths, which belong to the host. */
export function buildTreeRecord(
  tree: Pick<ExtractedTree, 'files' | 'symlinks'>,
  keepPaths: readonly string[],
): TreeRecord {
  const isOurs = ({ path }: { path: string }): boolean =>
    !keepPaths.some(kept => path === kept || path.startsWith(`${kept}/`))
  const files = tree.files.filter(isOurs)
  const symlinks = tree.symlinks.filter(isOurs)
  const linkedTo = new Set(symlinks.map(resolveTarget))
  const hashes = new Map(tree.files.filter(({ path }) => linkedTo.has(path)).map(({ path, sha256 }) => [path, sha256]))
  const throughLinks = symlinks.flatMap(symlink => {
    const sha256 = hashes.get(resolveTarget(symlink))
    return sha256 === undefined ? [] : [{ path: symlink.path, sha256 }]
  })
  return { digest: treeDigest([...files, ...throughLinks]), files, symlinks }
}

export async function writeTreeRecord(layout: Layout, record: TreeRecord): Promise<void> {
  const path = treeRecordPath(layout, record.digest)
  if (pathExistsSync(path)) return
  // The record of a large tree takes long to build and as long again to serialize.
  await hearSignals()
  await replaceFile(path, JSON.stringify({ files: record.files, symlinks: record.symlinks }))
}

/** The record with this digest, or undefined when there is none, or a damaged one. Throws as `readStateFileSync` does. */
export function readTreeRecord(layout: Layout, digest: string): TreeRecord | undefined {
  const text = readStateFileSync(treeRecordPath(layout, digest))
  try {
    return text === undefined ? undefined : { ...schema.parse(JSON.parse(text)), digest }
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof z.core.$ZodError) return undefined
    throw error
  }
}

/** Removes the records that no installed or retained version names. */
export function pruneTreeRecords(layout: Layout, used: ReadonlySet<string>): void {
  const stale = readdirSync(layout.trees).filter(name => !used.has(name.replace(/\.json$/, '')))
  const errors: unknown[] = []
  for (const name of stale) {
    try {
      unlinkSync(join(layout.trees, name))
    } catch (error) {
      errors.push(error)
    }
  }
  if (errors.length > 0) throw errors[0]
}

/** Compares a tree with its record: bytes, modes, symlink targets. Keep-paths are not compared. */
export async function compareTree(
  { root, keepPaths }: HostTree,
  record: TreeRecord,
  signal?: AbortSignal,
): Promise<TreeDifference> {
  const found = new Map((await walkTree(root, new Set(keepPaths))).map(entry => [entry.path, entry]))
  const digester = new FileDigester(signal)
  const difference: TreeDifference = { missing: [], extra: [], changed: [] }
  for (const expected of [...record.files, ...record.symlinks]) {
    const { path } = expected
    const entry = found.get(path)
    found.delete(path)
    if (entry === undefined) difference.missing.push(path)
    else if (!isAlike(entry, expected)) difference.changed.push(path)
    else if ('sha256' in expected && (await digester.sha256(join(root, path))) !== expected.sha256)
      difference.changed.push(path)
  }
  difference.extra.push(...found.keys())
  return difference
}

/** Everything but the bytes. */
function isAlike(entry: TreeEntry, expected: TreeRecord['files'][number] | TreeRecord['symlinks'][number]): boolean {
  if ('target' in expected) return entry.type === 'symlink' && entry.target === expected.target
  return entry.type === 'file' && entry.size === expected.size && entry.mode === expected.mode
}

/** Relative to the tree's root, like the symlink's own path. */
function resolveTarget({ path, target }: { path: string; target: string }): string {
  return posix.join(posix.dirname(path), target)
}
