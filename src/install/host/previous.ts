import { join } from 'node:path'
import { parsePluginYaml } from '../../core/content/plugin-yaml.ts'
import { MAX_SMALL_FILE_BYTES } from '../../core/limits.ts'
import type { Log } from '../../core/log.ts'
import { readSmallFileSync } from '../files/read-small-file.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import {
  findInstalled,
  type InstalledRow,
  type InstalledVersion,
  isFrom,
  type Origin,
  type RemovedRow,
  readHostRecord,
  snapshotsFrom,
} from './installed.ts'
import { installPath, type Layout, type Place, snapshotsPath } from './layout.ts'

/** What is installed in a place before a deployment. */
export interface Previous {
  readonly installed: InstalledRow | undefined
  /** What is retained of a place that was left empty. */
  readonly removed: RemovedRow | undefined
  readonly version: string | null
}

/** What stands in a place before a deployment: our own record of it, and its version as far as anything says so. */
export function readPrevious(layout: Layout, place: Place): Previous {
  const record = readHostRecord(layout)
  const installed = findInstalled(record.installed, place)
  const removed = findInstalled(record.removed, place)
  const version = installed?.version ?? readForeignVersion(installPath(layout, place))
  return { installed, removed, version }
}

/** The versions that a place has had from this origin, by our own record: those of another origin are no measure. */
export function versionsFrom({ installed }: Previous, origin: Origin): InstalledVersion[] {
  if (installed === undefined) return []
  return [...(isFrom(installed, origin) ? [installed] : []), ...snapshotsFrom(installed, origin)]
}

/**
 * The snapshot, absolute, that holds what belongs to the host of a thing of this origin that was taken away, if one does and
 * nothing is in the place, which has its own.
 */
export function findLeftBehind(
  layout: Layout,
  place: Place,
  { installed, removed }: Previous,
  origin: Origin,
): string | undefined {
  const row = installed ?? removed
  if (row === undefined || pathExistsSync(installPath(layout, place))) return undefined
  const newest = snapshotsFrom(row, origin).findLast(snapshot => snapshot.kept_paths !== undefined)
  return newest && join(snapshotsPath(layout, place), newest.name)
}

/** Warns when a deployment takes over a place from another plugin, service or project, and tells of what others left there. */
export function warnOfTakeover({ installed, removed }: Previous, { shelf, id }: Place, origin: Origin, log: Log): void {
  for (const { name, kept_paths: kept, ...snapshot } of removed?.snapshots ?? []) {
    const owner = snapshot.origin ?? removed
    if (kept !== undefined && owner !== undefined && !isFrom(owner, origin))
      log.notice(`Snapshot ${name} of ${shelf}/${id} holds ${kept.join(', ')} of ${owner.slug}: they stay there.`)
  }
  if (installed === undefined || isFrom(installed, origin)) return
  const owner = installed.contract === 'project' ? 'project' : installed.kind
  log.warning(
    `${shelf}/${id} was installed by the ${owner} ${installed.slug}, and this deployment takes the place over: if both go on to deploy here, each replaces the other's version. Give them different ids or project roots.`,
  )
}

/** What stands in the place without a record of ours may still say in its plugin.yaml which version it is. */
function readForeignVersion(path: string): string | null {
  try {
    const text = readSmallFileSync(join(path, 'plugin.yaml'), MAX_SMALL_FILE_BYTES)
    return text === undefined ? null : (parsePluginYaml(text).version ?? null)
  } catch {
    return null
  }
}
