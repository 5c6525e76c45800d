import { readdirSync, readFileSync, unlinkSync } from 'node:fs'
import { join, posix } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { treeDigest } from '../../core/trust/tree-digest.ts'
import { replaceFile } from '../files/durable-files.ts'
import type { ExtractedTree } from '../files/extracted-tree.ts'
import { FileDigester } from '../files/file-digester.ts'
import { hearSignals } from '../files/time-slice.ts'
import { pathExistsSync, type TreeEntry, walkTree } from '../files/tree-walk.ts'
import { type Layout, treeRecordPath } from './layout.ts'

const schema = z.lazy(() =>
  z.object({
    files: z.array(z.object({ path: z.string(), sha256: z.string(), size: z.number(), mode: z.number() })),
    symlinks: z.array(z.object({ path: z.string(), target: z.string() })),
  }),
)

/** Exactly what was installed, so that it can be told later whether it still is. Kept under its tree digest. */
export type TreeRecord = z.infer<typeof schema> & { digest: string }

export interface TreeDifference {
  added: string[]
  removed: string[]
  changed: string[]
}

/** The record of an extracted tree; whatever lies under a keep-path belongs to the host and is left out. */
export function buildTreeRecord(
  tree: Pick<ExtractedTree, 'files' | 'symlinks'>,
  keepPaths: readonly string[],
): TreeRecord {
  const isOurs = ({ path }: { path: string }): boolean =>
    !keepPaths.some(kept => path === kept || path.startsWith(`${kept}/`))
  const files = tree.files.filter(isOurs)
  const symlinks = tree.symlinks.filter(isOurs)
  const hashes = new Map(tree.files.map(file => [file.path, file.sha256]))
  const throughLinks = symlinks.flatMap(({ path, target }) => {
    const sha256 = hashes.get(posix.join(posix.dirname(path), target))
    return sha256 === undefined ? [] : [{ path, sha256 }]
  })
  return { digest: treeDigest([...files, ...throughLinks]), files, symlinks }
}

export async function writeTreeRecord(layout: Layout, record: TreeRecord): Promise<void> {
  const path = treeRecordPath(layout, record.digest)
  if (pathExistsSync(path)) return
  // Of a large tree the record may have just been computed, and its text is as much work again.
  await hearSignals()
  await replaceFile(path, JSON.stringify({ files: record.files, symlinks: record.symlinks }))
}

/** The record with this digest, or undefined when there is none that can be read. */
export function readTreeRecord(layout: Layout, digest: string): TreeRecord | undefined {
  try {
    return { ...schema.parse(JSON.parse(readFileSync(treeRecordPath(layout, digest), 'utf8'))), digest }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || error instanceof SyntaxError || error instanceof z.core.$ZodError)
      return undefined
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

/** How what lies at `root` differs from the record: bytes, modes, symlink targets. Keep-paths are not looked at. */
export async function compareTree(
  root: string,
  record: TreeRecord,
  keepPaths: readonly string[],
  signal?: AbortSignal,
): Promise<TreeDifference> {
  const found = new Map((await walkTree(root, new Set(keepPaths))).map(entry => [entry.path, entry]))
  const digester = new FileDigester(signal)
  const difference: TreeDifference = { added: [], removed: [], changed: [] }
  for (const expected of [...record.files, ...record.symlinks]) {
    const entry = found.get(expected.path)
    found.delete(expected.path)
    if (entry === undefined) difference.removed.push(expected.path)
    else if (!(await isAsRecorded(root, entry, expected, digester))) difference.changed.push(expected.path)
  }
  difference.added.push(...found.keys())
  return difference
}

async function isAsRecorded(
  root: string,
  entry: TreeEntry,
  expected: TreeRecord['files'][number] | TreeRecord['symlinks'][number],
  digester: FileDigester,
): Promise<boolean> {
  if ('target' in expected) return entry.type === 'symlink' && entry.target === expected.target
  if (entry.type !== 'file' || entry.size !== expected.size || entry.mode !== expected.mode) return false
  return (await digester.sha256(join(root, entry.path))) === expected.sha256
}
