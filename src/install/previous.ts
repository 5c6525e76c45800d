import { join } from 'node:path'
import { MAX_SMALL_FILE_BYTES } from '../core/limits.ts'
import type { Log } from '../core/log.ts'
import { parsePluginYaml } from '../core/plugin-yaml.ts'
import {
  findInstalled,
  type InstalledRow,
  type InstalledVersion,
  type RemovedRow,
  readHostRecord,
} from './installed.ts'
import { installPath, type Layout, type Place, snapshotsPath } from './layout.ts'
import { readSmallFile } from './small-file.ts'
import type { Previous } from './steps/step-context.ts'

/** What stands in a place before a deployment: our own record of it, and its version as far as anything says so. */
export async function readPrevious(layout: Layout, { shelf, id }: Place): Promise<Previous> {
  const record = await readHostRecord(layout)
  const installed = findInstalled(record.installed, shelf, id)
  const removed = findInstalled(record.removed, shelf, id)
  const version = installed?.version ?? (await readForeignVersion(installPath(layout, shelf, id)))
  return { installed, removed, version }
}

type Origin = Pick<InstalledRow, 'contract' | 'slug'>

/** The versions that a place has had from this origin, by our own record: those of another origin are no measure. */
export function versionsFrom({ installed }: Previous, origin: Origin): InstalledVersion[] {
  return installed !== undefined && isFrom(installed, origin) ? [installed, ...installed.snapshots] : []
}

/** The snapshot, absolute, that holds what belongs to the host of a thing of this origin that was taken away, if one does. */
export function findLeftBehind(
  layout: Layout,
  { shelf, id }: Place,
  { removed }: Previous,
  origin: Origin,
): string | undefined {
  if (removed === undefined || !isFrom(removed, origin)) return undefined
  const newest = removed.snapshots.findLast(snapshot => snapshot.kept_paths !== undefined)
  return newest && join(snapshotsPath(layout, shelf, id), newest.name)
}

function isFrom(row: RemovedRow, { contract, slug }: Origin): boolean {
  return row.contract === contract && row.slug === slug
}

/** Warns when a deployment takes over a place from another plugin, service or project. */
export function warnOfTakeover({ installed }: Previous, { shelf, id }: Place, origin: Origin, log: Log): void {
  if (installed === undefined || isFrom(installed, origin)) return
  const owner = installed.contract === 'project' ? 'project' : installed.kind
  log.warning(
    `${shelf}/${id} was installed by the ${owner} ${installed.slug}, and this deployment takes the place over: if both go on to deploy here, each replaces the other's version. Give them different ids or project roots.`,
  )
}

/** What stands in the place without a record of ours may still say in its plugin.yaml which version it is. */
async function readForeignVersion(path: string): Promise<string | null> {
  try {
    const text = await readSmallFile(join(path, 'plugin.yaml'), MAX_SMALL_FILE_BYTES)
    return text === undefined ? null : (parsePluginYaml(text).version ?? null)
  } catch {
    return null
  }
}
