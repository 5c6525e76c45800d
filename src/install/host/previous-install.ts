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
import { installPath, type Layout, type Place, placeName, snapshotsPath } from './layout.ts'

/** What a deployment finds in a place before it changes anything. */
export interface PreviousInstall {
  readonly place: Place
  /** Our record of what is installed there. */
  readonly installed: InstalledRow | undefined
  /** Our record of what is retained of a removed part. */
  readonly removed: RemovedRow | undefined
  /** Of what is installed there, even if we have no record of it. */
  readonly version: string | null
}

export function readPreviousInstall(layout: Layout, place: Place): PreviousInstall {
  const record = readHostRecord(layout)
  const installed = findInstalled(record.installed, place)
  const removed = findInstalled(record.removed, place)
  const version = installed?.version ?? readForeignVersion(installPath(layout, place))
  return { place, installed, removed, version }
}

/** The versions that a place has had from this origin, by our own record; those of other origins do not compare. */
export function versionsFrom({ installed }: PreviousInstall, origin: Origin): InstalledVersion[] {
  if (installed === undefined) return []
  return [...(isFrom(installed, origin) ? [installed] : []), ...snapshotsFrom(installed, origin)]
}

/**
 * The snapshot, absolute, with the kept paths of a removed part of this origin, if there is one. Undefined when
 * something is in the place now, which has its own.
 */
export function findLeftBehind(layout: Layout, previous: PreviousInstall, origin: Origin): string | undefined {
  const { place, installed, removed } = previous
  const row = installed ?? removed
  if (row === undefined || pathExistsSync(installPath(layout, place))) return undefined
  const newest = snapshotsFrom(row, origin).findLast(snapshot => snapshot.kept_paths !== undefined)
  return newest && join(snapshotsPath(layout, place), newest.name)
}

/**
 * Warns when a deployment takes over a place from another plugin, service or project; names the kept paths left there
 * by others.
 */
export function warnOfTakeover({ place, installed, removed }: PreviousInstall, origin: Origin, log: Log): void {
  for (const { name, kept_paths: kept, ...snapshot } of removed?.snapshots ?? []) {
    const owner = snapshot.origin ?? removed
    if (kept !== undefined && owner !== undefined && !isFrom(owner, origin))
      log.notice(
        `Snapshot ${name} of ${placeName(place)} contains ${kept.join(', ')} of ${owner.slug}, which stay there.`,
      )
  }
  if (installed === undefined || isFrom(installed, origin)) return
  const owner = installed.contract === 'project' ? 'project' : installed.kind
  log.warning(
    `The ${owner} ${installed.slug} installed ${placeName(place)}, and this deployment takes it over. If both continue to deploy here, each replaces the other's version. Give them different ids or project roots.`,
  )
}

/** Something that we have no record of may name its version in its plugin.yaml. */
function readForeignVersion(path: string): string | null {
  try {
    const text = readSmallFileSync(join(path, 'plugin.yaml'), MAX_SMALL_FILE_BYTES)
    return text === undefined ? null : (parsePluginYaml(text).version ?? null)
  } catch {
    return null
  }
}
