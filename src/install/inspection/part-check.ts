import { comparePaths } from '../../core/trust/tree-digest.ts'
import { FileDigester } from '../files/file-digester.ts'
import { describeItemSync } from '../files/trees/tree-item.ts'
import { lstatIfPresentSync } from '../files/trees/tree-walk.ts'
import { placeOf } from '../host/installed/row-place.ts'
import type { InstalledRow } from '../host/installed/rows.ts'
import { installPath, type Layout } from '../host/layout.ts'
import { reasonOf } from '../host/trees/drift.ts'
import { readTreeRecord } from '../host/trees/record/read-tree-record.ts'
import { recordPath } from '../host/trees/record/tree-identity.ts'
import {
  type Difference,
  findDifferences,
  findNoDirectory,
  hasSameBytes,
  isFile,
  type NoDirectory,
} from '../host/trees/tree-comparison.ts'

/**
 * How one path differs. `mode`: the same bytes with a different mode. `replaced`: an entry of a different kind.
 * `writable`: a directory that the group or others can write to, unlike any that a deployment makes.
 */
export type How = 'added' | 'removed' | 'changed' | 'mode' | 'replaced' | 'writable'

/** One differing path, relative to the part's directory; `.` is the directory itself. */
export interface PathDrift {
  readonly path: string
  readonly how: How
}

/** How an installed part differs from what was installed, or why this is not known. */
export type PartDrift =
  /** `paths` is in order and contains as many paths as there was room for; `count` includes the rest. */
  | { readonly kind: 'differs'; readonly paths: readonly PathDrift[]; readonly count: number }
  | { readonly kind: 'no directory'; readonly instead: NoDirectory }
  /**
   * `isPassing`: the reason lasts only until the deployment in progress ends, or the interrupted deployment is
   * recovered.
   */
  | { readonly kind: 'not compared'; readonly why: string; readonly isPassing: boolean }

/** The settings of a check, and the limit that all parts share. */
export interface CheckSetting {
  readonly layout: Layout
  /** Keep-paths in addition to those that each part was installed with. */
  readonly keepPaths: readonly string[]
  readonly signal: AbortSignal
  /** The number of differing paths that all parts together may still list. */
  room: number
}

/** The default keep-paths of the versions of the action that did not record keep-paths. */
const EARLIER_KEEP_PATHS = ['.env', 'data']

/**
 * Compares the files of an installed part with those that were installed. Returns undefined if they do not differ, and
 * a reason if they could not be compared. Does not read a file whose inode and times show that it is unchanged. Throws
 * only the signal's reason.
 */
export async function checkPart(setting: CheckSetting, row: InstalledRow): Promise<PartDrift | undefined> {
  const { layout, signal } = setting
  try {
    const instead = findNoDirectory(installPath(layout, placeOf(row)))
    if (instead !== undefined) return { kind: 'no directory', instead }
    return await compare(setting, row)
  } catch (error) {
    signal.throwIfAborted()
    return { kind: 'not compared', why: reasonOf(error, layout, row), isPassing: false }
  }
}

async function compare(setting: CheckSetting, row: InstalledRow): Promise<PartDrift | undefined> {
  const { layout, signal } = setting
  const record = readTreeRecord(layout, row)
  if (record === undefined) return { kind: 'not compared', why: withoutRecord(layout, row), isPassing: false }
  const keepPaths = [...(row.keep_paths ?? EARLIER_KEEP_PATHS), ...setting.keepPaths]
  const root = installPath(layout, placeOf(row))
  const paths: PathDrift[] = []
  let count = 0
  const hasRoom = (): boolean => {
    count += 1
    return setting.room-- > 0
  }
  const onDirectory = (path: string): void => {
    if (isExposed(root, path) && hasRoom()) paths.push({ path: path === '' ? '.' : path, how: 'writable' })
  }
  const tree = { root, keepPaths, digester: new FileDigester(signal), onDirectory }
  for await (const difference of findDifferences(tree, record, signal)) {
    if (!hasRoom()) continue
    const { path } = difference.recorded ?? difference.found
    paths.push({ path, how: await howOf(difference, tree) })
  }
  paths.sort((a, b) => comparePaths(a.path, b.path))
  return count === 0 ? undefined : { kind: 'differs', paths, count }
}

/**
 * True if another account can change the contents of a directory. The group may write to Python's caches, because
 * Python makes them with the service's umask.
 */
function isExposed(root: string, path: string): boolean {
  const mode = lstatIfPresentSync(`${root}/${path}`)?.mode ?? 0
  return (mode & (/(?:^|\/)__pycache__$/.test(path) ? 0o002 : 0o022)) !== 0
}

async function howOf({ recorded, found }: Difference, tree: { root: string; digester: FileDigester }): Promise<How> {
  if (recorded === undefined) return 'added'
  if (found === undefined) return describeItemSync(tree.root, recorded.path) === undefined ? 'removed' : 'replaced'
  if (isFile(recorded) !== isFile(found)) return 'replaced'
  if (recorded.kind === found.kind || !isFile(found)) return 'changed'
  return (await hasSameBytes(recorded, found, tree)) ? 'mode' : 'changed'
}

function withoutRecord(layout: Layout, row: InstalledRow): string {
  if (row.tree_record === undefined && row.tree_digest === null)
    return 'There is no record of its files. The next deployment that changes this part writes a record.'
  return `${recordPath(layout, row)}, the record of its files, is missing. Deploy this version again to write a new record.`
}
