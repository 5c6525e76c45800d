import { join } from 'node:path'
import { isSameVersion } from '../../core/trust/versions.ts'
import { snapshotsFrom } from '../../install/host/installed/origin.ts'
import type { InstalledRow, Origin, SnapshotRow } from '../../install/host/installed/rows.ts'
import { type Place, snapshotsPath } from '../../install/host/layout.ts'
import { existingSnapshots, isGenuine } from '../../install/host/snapshots.ts'
import type { ReturningVersion } from '../../install/steps/parts/part.ts'
import type { RunningRollback } from '../deployment.ts'
import { noSnapshot, requireOwnPart, unrecorded } from '../refusals.ts'
import { isIntact, keepInstalled, type Target, type TargetPart, takeRetained } from './target-part.ts'

/** Finds the snapshot of one plugin or service that is installed. Throws as `findTarget` does. */
export async function findPartTarget(rollback: RunningRollback, place: Place, row: InstalledRow): Promise<Target> {
  requireOwnPart(row, { place, slug: rollback.record.facts.slug })
  const origin = { contract: row.contract, slug: row.slug }
  const part = await choosePart(rollback, { place, origin, row })
  return {
    version: part.version,
    origin: { ...origin, project_version: null },
    parts: [part],
    removals: [],
    plugins: undefined,
  }
}

/** The installed version in a place. */
interface Installed {
  readonly place: Place
  readonly origin: Origin
  readonly row: InstalledRow
}

async function choosePart(rollback: RunningRollback, { place, origin, row }: Installed): Promise<TargetPart> {
  const { toVersion } = rollback.request
  if (isNamed(row.version, toVersion) && (await isIntact(rollback, place)))
    return keepInstalled(rollback, { place, origin, returning: versionIn(row) })
  const snapshot = chooseSnapshot(rollback, place, row)
  const { name: _, origin: __, kept_paths: ___, keep_paths: ____, ...returning } = snapshot
  return takeRetained(rollback, { place, origin, returning }, snapshot)
}

/**
 * Chooses the newest unmodified snapshot of the requested version or, if all its snapshots are modified, the newest of
 * them. If no version was requested, only an unmodified snapshot of a version that was installed before the current one
 * qualifies. A version that an earlier rollback replaced does not qualify, because it was installed later. Ignores
 * snapshots without a record of their files. Throws DeploymentError `no_snapshot`, or `snapshot_modified` if the
 * requested version has only snapshots without a record.
 */
function chooseSnapshot({ layout, request }: RunningRollback, place: Place, row: InstalledRow): SnapshotRow {
  const { toVersion } = request
  const folder = snapshotsPath(layout, place)
  const known = existingSnapshots(folder, snapshotsFrom(row, row))
  const asked = known.filter(snapshot =>
    toVersion === undefined ? isEarlier(snapshot, row) : isNamed(snapshot.version, toVersion),
  )
  const recorded = asked.filter(({ tree_digest: digest }) => digest !== null)
  const chosen = recorded.findLast(isGenuine) ?? (toVersion === undefined ? undefined : recorded.at(-1))
  if (chosen !== undefined) return chosen
  const unknown = toVersion === undefined ? undefined : asked.at(-1)
  if (unknown !== undefined) throw unrecorded(join(folder, unknown.name))
  throw noSnapshot(row, { toVersion, known })
}

function isNamed(version: string | null, asked: string | undefined): boolean {
  return version !== null && asked !== undefined && isSameVersion(version, asked)
}

function versionIn(row: InstalledRow): ReturningVersion {
  const { contract: _, kind: __, slug: ___, id: ____, directory: _____, keep_paths: ______, ...version } = row
  const { snapshots: _______, ...installed } = version
  return installed
}

/** Compares the times of the first installations, which a rollback does not change. */
function isEarlier(snapshot: SnapshotRow, row: InstalledRow): boolean {
  return (snapshot.installed_at ?? '') < (row.installed_at ?? '')
}
