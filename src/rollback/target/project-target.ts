import { listNames } from '../../core/foreign-text.ts'
import { isSameVersion } from '../../core/trust/versions.ts'
import { findInstalled, readHostRecord } from '../../install/host/installed/host-record.ts'
import { isFrom, snapshotsFrom } from '../../install/host/installed/origin.ts'
import { isSameTree } from '../../install/host/installed/project-versions.ts'
import { placeOf } from '../../install/host/installed/row-place.ts'
import type {
  InstalledRow,
  Origin,
  ProjectPart,
  ProjectVersion,
  SnapshotRow,
} from '../../install/host/installed/rows.ts'
import { isSamePlace, type Place, placeName, snapshotsPath } from '../../install/host/layout.ts'
import { verifyProjectPlace } from '../../install/host/previous-install.ts'
import { existingSnapshots, isGenuine } from '../../install/host/snapshots.ts'
import type { RunningRollback } from '../deployment.ts'
import { missingParts, noProjectVersion } from '../refusals.ts'
import { isIntact, keepInstalled, type Target, type TargetPart, takeRetained } from './target-part.ts'

/**
 * Finds all parts of one version of a project. Parts that are installed with the same files stay, other parts return
 * from their snapshots, and parts that the version did not contain are removed. Throws as `findTarget` does; the
 * message of `no_snapshot` also names the parts that are missing or modified.
 */
export async function findProjectTarget(
  rollback: RunningRollback,
  slug: string,
  rows: readonly InstalledRow[],
): Promise<Target> {
  const { version, parts } = await chooseVersion(rollback, slug)
  const origin = { contract: 'project' as const, slug }
  const claim = { origin, allowTakeover: false, chosenBy: 'rollback', log: rollback.tools.log } as const
  for (const part of parts) verifyProjectPlace(rollback.layout, part, claim)
  const returning = new Set(parts.map(placeName))
  const installed = rows.map(row => ({ ...placeOf(row), installed: row }))
  const plugins = parts.filter(({ shelf }) => shelf === 'plugins').map(({ id, version: own }) => ({ id, version: own }))
  return {
    version,
    origin: { ...origin, project_version: version },
    parts,
    removals: installed.filter(part => !returning.has(placeName(part))),
    plugins,
  }
}

/** A version whose parts are all on this host. */
interface WholeVersion {
  readonly version: string
  readonly parts: readonly TargetPart[]
}

/**
 * Chooses the requested version, or else the newest complete version that was first installed before the current one.
 * That excludes a version that an earlier rollback replaced, because it was installed later. One version may have had
 * several states, because the source of a part may have supplied different trees.
 */
async function chooseVersion(rollback: RunningRollback, slug: string): Promise<WholeVersion> {
  const { toVersion } = rollback.request
  const known = readHostRecord(rollback.layout).projects.filter(project => project.slug === slug)
  const lacking: string[] = []
  for (const version of candidatesOf(known, toVersion)) {
    const found = await findParts(rollback, version)
    if (found.missing.length === 0) return { version: version.version, parts: found.parts }
    lacking.push(`${describe(version)} needs ${found.missing.join(', ')}`)
  }
  if (lacking.length > 0) throw missingParts(slug, lacking)
  throw noProjectVersion(slug, { toVersion, known: [...new Set(known.map(({ version }) => version))] })
}

/**
 * Returns the candidates, newest first. If `toVersion` names the current version, the candidates are the earlier states
 * of that version or, if there are none, its current state.
 */
function candidatesOf(known: readonly ProjectVersion[], toVersion: string | undefined): readonly ProjectVersion[] {
  const present = known.at(-1)
  const earlier = known.slice(0, -1).filter(isBefore(present)).reverse()
  if (toVersion === undefined) return earlier
  const isAsked = ({ version }: ProjectVersion): boolean => isSameVersion(version, toVersion)
  if (present === undefined || !isAsked(present)) return known.filter(isAsked).slice(-1)
  const asked = earlier.filter(isAsked)
  return asked.length === 0 ? [present] : asked
}

function describe({ version, parts }: ProjectVersion): string {
  const sourced = parts.filter(({ source }) => source !== undefined)
  if (sourced.length === 0) return version
  return `${version} with ${listNames(sourced.map(part => `${placeName(placeOf(part))} ${part.version}`))}`
}

/**
 * Compares the times at which the newest part of each version was first installed. A rollback does not change these
 * times.
 */
function isBefore(present: ProjectVersion | undefined): (version: ProjectVersion) => boolean {
  const timeOf = (version: ProjectVersion | undefined): string =>
    (version?.parts ?? []).reduce((latest, { installed_at: at }) => ((at ?? '') > latest ? (at ?? '') : latest), '')
  const presentTime = timeOf(present)
  return version => timeOf(version) < presentTime
}

async function findParts(
  rollback: RunningRollback,
  { slug, parts }: ProjectVersion,
): Promise<{ parts: TargetPart[]; missing: string[] }> {
  const found: TargetPart[] = []
  const missing: string[] = []
  for (const part of parts) {
    const target = await findPart(rollback, { contract: 'project', slug }, part)
    if (typeof target === 'string') missing.push(target)
    else found.push(target)
  }
  return { parts: found, missing }
}

/** Returns the part, or a description of what is missing if the part cannot be restored. */
async function findPart(rollback: RunningRollback, origin: Origin, part: ProjectPart): Promise<TargetPart | string> {
  const { kind: _, id: __, directory: ___, ...returning } = part
  const place = placeOf(part)
  const target = { place, origin, returning }
  const record = readHostRecord(rollback.layout)
  const row = findInstalled(record.installed, place)
  const isThere = row !== undefined && isSamePlace(placeOf(row), place)
  if (isThere && isFrom(row, origin) && isSameTree(row, part))
    return (await isIntact(rollback, place)) ? keepInstalled(rollback, target) : changedPart(place)
  const retained = findInstalled([...record.installed, ...record.removed], place)
  const snapshots = retained === undefined ? [] : snapshotsFrom(retained, origin)
  const snapshot = findSnapshot(rollback, { place, snapshots }, part)
  return snapshot === undefined ? lostPart(place, part, snapshots) : takeRetained(rollback, target, snapshot)
}

function findSnapshot(
  { layout }: RunningRollback,
  { place, snapshots }: { readonly place: Place; readonly snapshots: readonly SnapshotRow[] },
  part: ProjectPart,
): SnapshotRow | undefined {
  return existingSnapshots(snapshotsPath(layout, place), snapshots).findLast(
    snapshot => isGenuine(snapshot) && isSameTree(snapshot, part),
  )
}

function changedPart(place: Place): string {
  return `${placeName(place)} (it is installed, but its files were changed on this host)`
}

function lostPart(place: Place, { version }: ProjectPart, snapshots: readonly SnapshotRow[]): string {
  const modified = snapshots.find(snapshot => snapshot.version === version && !isGenuine(snapshot))
  return modified === undefined
    ? `${placeName(place)} ${version}`
    : `${placeName(place)} (snapshot ${modified.name} was changed on this host)`
}
