import { readdirSync, unlinkSync } from 'node:fs'
import { join, posix } from 'node:path'
import { z } from 'zod/mini'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { treeDigest } from '../../core/trust/tree-digest.ts'
import { replaceFile } from '../files/durable-files.ts'
import type { ExtractedTree } from '../files/extracted-tree.ts'
import { FileDigester } from '../files/file-digester.ts'
import { hearSignals } from '../files/time-slice.ts'
import { isAbsent, type TreeEntry, walkTree } from '../files/tree-walk.ts'
import { findInstalled, readInstalled } from './installed.ts'
import type { HostTree } from './keep-paths.ts'
import { type Layout, type Place, placeName, treeRecordPath } from './layout.ts'
import { digestSchema, innerPathSchema } from './record-fields.ts'
import { describeDamage, readStateFileSync } from './state-file.ts'

const treeSchema = z.lazy(() =>
  z.object({
    files: z.array(
      z.object({
        path: innerPathSchema,
        sha256: digestSchema,
        size: z.int().check(z.nonnegative()),
        mode: z.literal([0o644, 0o755]),
      }),
    ),
    symlinks: z.array(
      z.object({
        path: innerPathSchema,
        target: z.string().check(z.regex(/^\P{Cc}{1,4096}$/u, { error: 'must be the target of a symlink' })),
        /** Of the file that it leads to, through any other symlinks; absent where it leads to none. */
        sha256: z.exactOptional(digestSchema),
      }),
    ),
  }),
)
type RecordedTree = z.infer<typeof treeSchema>

/** Exactly what was installed, to compare later with what is there. Stored under its tree digest. */
export type TreeRecord = RecordedTree & { digest: string }

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
  const isOurs = isOursIn(keepPaths)
  const files = tree.files.filter(isOurs)
  const digests = new Map(tree.files.map(({ path, sha256 }) => [path, sha256]))
  const symlinks = tree.symlinks.filter(isOurs).map(({ path, target, file }) => {
    const sha256 = digests.get(file ?? '')
    return { path, target, ...(sha256 === undefined ? {} : { sha256 }) }
  })
  return { digest: digestOf({ files, symlinks }), files, symlinks }
}

function isOursIn(keepPaths: readonly string[]) {
  return ({ path }: { path: string }): boolean => !keepPaths.some(kept => path === kept || path.startsWith(`${kept}/`))
}

/** A symlink to a file counts with the bytes of that file. */
function digestOf({ files, symlinks }: RecordedTree): string {
  const throughLinks = symlinks.flatMap(({ path, sha256 }) => (sha256 === undefined ? [] : [{ path, sha256 }]))
  return treeDigest([...files, ...throughLinks])
}

/** In a record of an earlier version of the action, only its target says which file a symlink leads to. */
function completed({ files, symlinks }: RecordedTree): RecordedTree {
  if (symlinks.every(({ sha256 }) => sha256 !== undefined)) return { files, symlinks }
  const digests = new Map(files.map(({ path, sha256 }) => [path, sha256]))
  const known = symlinks.map(symlink => {
    const sha256 = symlink.sha256 ?? digests.get(resolveTarget(symlink))
    return sha256 === undefined ? symlink : { ...symlink, sha256 }
  })
  return { files, symlinks: known }
}

/**
 * Writes the record of a tree, unless it is there. One that is damaged is replaced, with a warning. Throws DeploymentError
 * `host_not_writable` when something else is in its place.
 */
export async function writeTreeRecord({ layout, log }: RecordFolder, record: TreeRecord): Promise<void> {
  const path = treeRecordPath(layout, record.digest)
  // The record of a large tree takes long to build and as long again to serialize.
  await hearSignals()
  const text = JSON.stringify({ files: record.files, symlinks: record.symlinks })
  const found = readStateFileSync(path)
  if (found === text) return
  const damage = found === undefined ? undefined : findDamage(found, record.digest)
  // Another tree with these bytes, which differs in modes or symlinks alone.
  if (found !== undefined && damage === undefined) return
  if (damage !== undefined) log.warning(`${path} was damaged (${damage}). It is written again.`)
  await replaceFile(path, text)
}

/** Where tree records are, and who hears of a damaged one. */
export interface RecordFolder {
  readonly layout: Layout
  readonly log: Log
}

/**
 * The record with this digest, or undefined when there is none. Its entries have this digest, and every path in it is
 * one below the tree. Throws DeploymentError `host_not_writable` with the name of a record that is damaged, or is no
 * file.
 */
export function readTreeRecord(layout: Layout, digest: string): TreeRecord | undefined {
  const path = treeRecordPath(layout, digest)
  const text = readStateFileSync(path)
  if (text === undefined) return undefined
  try {
    return { ...parseTree(text, digest), digest }
  } catch (error) {
    throw new DeploymentError(
      'host_not_writable',
      `${path} is not a record of installed files that this action writes (${describeDamage(error)}), so nothing can be compared with it. Move it away: the next deployment of these files writes it again.`,
      { cause: error },
    )
  }
}

/**
 * The record of what is installed in a place, as a comparison needs it: a damaged one, which says nothing about the
 * files, is a warning.
 */
export function readInstalledTree({ layout, log }: RecordFolder, place: Place): TreeRecord | undefined {
  try {
    const digest = findInstalled(readInstalled(layout), place)?.tree_digest
    return digest ? readTreeRecord(layout, digest) : undefined
  } catch (error) {
    log.warning(`${placeName(place)} is not compared with its record. ${toDeployError(error).message}`)
    return undefined
  }
}

function findDamage(text: string, digest: string): string | undefined {
  try {
    parseTree(text, digest)
    return undefined
  } catch (error) {
    return describeDamage(error)
  }
}

function parseTree(text: string, digest: string): RecordedTree {
  return treeSchema
    .check(z.refine(tree => digestOf(completed(tree)) === digest, 'its files do not have the digest of its name'))
    .parse(JSON.parse(text))
}

/** Removes the records that no installed or retained version names, and nothing else. */
export function pruneTreeRecords(layout: Layout, used: ReadonlySet<string>): void {
  const digests = readdirSync(layout.trees).flatMap(name => /^([0-9a-f]{64})\.json$/.exec(name)?.[1] ?? [])
  const stale = digests.filter(digest => !used.has(digest))
  const errors: unknown[] = []
  for (const digest of stale) {
    try {
      unlinkSync(treeRecordPath(layout, digest))
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
  for (const expected of [...record.files, ...record.symlinks].filter(isOursIn(keepPaths))) {
    const { path } = expected
    const entry = found.get(path)
    found.delete(path)
    if (entry === undefined) difference.missing.push(path)
    else if (!isAlike(entry, expected)) difference.changed.push(path)
    else if ('size' in expected && (await digestIfPresent(digester, join(root, path))) !== expected.sha256)
      difference.changed.push(path)
  }
  difference.extra.push(...found.keys())
  return difference
}

/** Undefined for what another process has removed or replaced since it was listed. */
async function digestIfPresent(digester: FileDigester, path: string): Promise<string | undefined> {
  try {
    return await digester.sha256(path)
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw error
  }
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
