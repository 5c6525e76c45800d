import { join } from 'node:path'
import { listNames } from '../core/text.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { requireInPlace, verifyDestination } from '../install/host/destination.ts'
import { directoryIn, isSamePlace, type Place, placeName, placeOf, snapshotsPath } from '../install/host/layout.ts'
import { requireSafeDestination } from '../install/host/ownership.ts'
import { findPluginsDirectory } from '../install/host/plugins-directory.ts'
import {
  findLeftBehind,
  presentRow,
  readPreviousInstall,
  verifyProjectPlace,
} from '../install/host/previous-install.ts'
import { checkHost } from '../install/host/readiness.ts'
import { findInstalled, isSameTree, readHostRecord, readInstalled } from '../install/host/record.ts'
import {
  type InstalledRow,
  type InstalledVersion,
  isFrom,
  newestInstallation,
  type Origin,
  type ProjectPart,
  type ProjectVersion,
  type SnapshotRow,
  snapshotsFrom,
} from '../install/host/rows.ts'
import { existingSnapshots, isGenuine, uniteKeepPaths } from '../install/host/snapshots.ts'
import { requireMovableTree } from '../install/host/switchable.ts'
import type { DeploymentFacts } from '../install/journal/facts.ts'
import type {
  InstalledPart,
  InstallOrder,
  IntactPart,
  RetainedPart,
  ReturningVersion,
} from '../install/steps/context.ts'
import { isOnlyAdded } from '../install/trees/drift.ts'
import { identityOf } from '../install/trees/record.ts'
import { isInstalledRow, type KnownRow, noteReplacedVersion, type RunningRollback } from './deployment.ts'
import { missingParts, noProjectVersion, noSnapshot, notInstalled, requireOwnPart, unrecorded } from './refusals.ts'

/**
 * Finds the snapshots to restore, and checks that this host can switch to them. A dry run only reads. Throws
 * DeploymentError `no_snapshot` (which lists the versions that could be restored), `snapshot_modified`, `place_taken`,
 * `host_not_writable`, `unsafe_host`, `disk_full` or `inconsistent`, and ConfigError `invalid_input` if a slug other
 * than the requested one is installed.
 */
export async function findTarget(rollback: RunningRollback): Promise<RollbackTarget> {
  const { record, request } = rollback
  const target = await choose(rollback)
  const { version } = target
  const known = { version, version_source: 'snapshot', ...identityIn(target), ...placeIn(target) }
  await record.update(known)
  checkDestinations(rollback, target)
  if (!request.dryRun) for (const part of [...target.parts, ...target.removals]) requireRestorable(rollback, part)
  return target
}

/** A project's plugins, or else the directory of the only part. */
function placeIn({ parts: [part], plugins }: RollbackTarget): Partial<DeploymentFacts> {
  if (plugins !== undefined) return { plugins }
  return part === undefined ? {} : directoryIn(part)
}

/** A tree that was changed on this host no longer has its artifact's digest. */
function identityIn({ parts }: RollbackTarget): Pick<DeploymentFacts, 'artifact_sha256' | 'modified'> {
  if (parts.some(({ returning }) => returning?.modified)) return { artifact_sha256: null, modified: true }
  const [artifact = null] = parts.map(({ artifactSha256 }) => artifactSha256)
  return { artifact_sha256: artifact }
}

async function choose(rollback: RunningRollback): Promise<RollbackTarget> {
  const { subject } = rollback.request
  const rows = await noteReplacedVersion(rollback)
  const [row] = rows
  if (row === undefined) throw notInstalled(subject, readInstalled(rollback.layout))
  return subject.contract === 'project'
    ? await findProjectTarget(rollback, subject.projectId, rows.filter(isInstalledRow))
    : await findPartTarget(rollback, choosePlace(rollback, row), row)
}

/**
 * Returns the place of a known part: for a plugin, in the directory that the operator or the host's own file names, else
 * where it is installed.
 */
export function choosePlace(
  { layout, tools }: Pick<RunningRollback, 'layout' | 'tools'>,
  row: KnownRow,
  input?: string | undefined,
): Place {
  const place = placeOf(row)
  if (place.shelf === 'extensions') return place
  const { directory } = findPluginsDirectory(
    layout,
    { input, recorded: place.directory, otherwise: place.directory },
    tools.log,
  )
  return { ...place, directory }
}

/** Checks that each part can be in the directory of the restored version, and that no part is elsewhere. */
function checkDestinations(
  { host, layout, request, tools }: RunningRollback,
  { parts, removals, origin }: RollbackTarget,
): void {
  const { allowTakeover } = request
  for (const directory of new Set([...parts, ...removals].map(part => part.directory)))
    for (const accepted of requireSafeDestination(host, directory)) tools.log.warning(accepted)
  const record = readHostRecord(layout)
  const rows = [...record.installed, ...record.removed]
  const isElsewhere = (part: Place): boolean => {
    const row = findInstalled(rows, part)
    return row !== undefined && !isSamePlace(placeOf(row), part)
  }
  const destinations = parts
    .filter(isElsewhere)
    .map(target => ({ target, chosenBy: 'rollback' as const, allowTakeover, origin }))
  for (const destination of destinations) verifyDestination(layout, destination)
  requireInPlace(layout, destinations)
}

function requireRestorable(rollback: RunningRollback, part: TargetPart | InstalledPart): void {
  const { layout } = rollback
  checkHost(rollback, part)
  if (!('retained' in part) || part.retained === undefined) return
  const root = join(snapshotsPath(layout, part), part.retained.name)
  requireMovableTree(layout, { root, keepPaths: part.keepPaths })
}

/** Finds the snapshot of one plugin or service that is installed or was removed. */
async function findPartTarget(rollback: RunningRollback, place: Place, row: KnownRow): Promise<RollbackTarget> {
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

/** What this host knows of a part in a place. */
interface Known {
  readonly place: Place
  readonly origin: Origin
  readonly row: KnownRow
}

async function choosePart(rollback: RunningRollback, { place, origin, row }: Known): Promise<TargetPart> {
  const { toVersion } = rollback.request
  if (isInstalledRow(row) && isAskedVersion(row.version, toVersion)) {
    const present = placeOf(presentRow(rollback.layout, row, place.directory))
    if (await isPlaceIntact(rollback, present))
      return keepInstalled(rollback, { place, origin, returning: returningVersion(row) })
  }
  const snapshot = chooseSnapshot(rollback, place, row)
  const { name: _, origin: __, kept_paths: ___, keep_paths: ____, retained_at: _____, ...returning } = snapshot
  return takeRetained(rollback, { place, origin, returning }, snapshot)
}

/**
 * Chooses the newest unmodified snapshot of the requested version or, if all its snapshots are modified, the newest of
 * them. If no version was requested, only an unmodified snapshot of a version that was installed before the current one
 * qualifies; of a removed part, any. A version that an earlier rollback replaced does not qualify, because it was installed later. Ignores
 * snapshots without a record of their files. Throws DeploymentError `no_snapshot`, or `snapshot_modified` if the
 * requested version has only snapshots without a record.
 */
function chooseSnapshot({ layout, request }: RunningRollback, place: Place, row: KnownRow): SnapshotRow {
  const { toVersion } = request
  const folder = snapshotsPath(layout, place)
  const known = existingSnapshots(folder, snapshotsFrom(row, row))
  const asked = known.filter(snapshot =>
    toVersion === undefined
      ? !isInstalledRow(row) || isInstalledBefore([snapshot], [row])
      : isAskedVersion(snapshot.version, toVersion),
  )
  const recorded = asked.filter(({ tree_digest: digest }) => digest !== null)
  const chosen = recorded.findLast(isGenuine) ?? (toVersion === undefined ? undefined : recorded.at(-1))
  if (chosen !== undefined) return chosen
  const unknown = toVersion === undefined ? undefined : asked.at(-1)
  if (unknown !== undefined) throw unrecorded(join(folder, unknown.name))
  throw noSnapshot(row, { toVersion, known })
}

/**
 * True if the newest of `parts` was first installed before the newest of `present`; a rollback does not change this.
 * The clock says nothing about it. Parts without a number are from before this host counted its installations, so they
 * are older than numbered ones, but of two such sets, nobody knows which is older: false.
 */
function isInstalledBefore(parts: readonly InstalledVersion[], present: readonly InstalledVersion[]): boolean {
  return newestInstallation(parts) < newestInstallation(present)
}

function isAskedVersion(version: string | null, asked: string | undefined): boolean {
  return version !== null && asked !== undefined && isSameVersion(version, asked)
}

function returningVersion(row: InstalledRow): ReturningVersion {
  const { contract: _, kind: __, slug: ___, id: ____, directory: _____, keep_paths: ______, ...version } = row
  const { snapshots: _______, ...installed } = version
  return installed
}

/**
 * Finds all parts of one version of a project. Parts that are installed with the same files stay, other parts return
 * from their snapshots, and parts that the version did not contain are removed. Throws as `findTarget` does; the
 * message of `no_snapshot` also names the parts that are missing or modified.
 */
async function findProjectTarget(
  rollback: RunningRollback,
  slug: string,
  rows: readonly InstalledRow[],
): Promise<RollbackTarget> {
  const { version, parts } = await chooseVersion(rollback, slug)
  const origin = { contract: 'project' as const, slug }
  const claim = { origin, allowTakeover: false, chosenBy: 'rollback', log: rollback.tools.log } as const
  for (const part of parts) verifyProjectPlace(rollback.layout, part, claim)
  const returning = new Set(parts.map(placeName))
  const directory = parts.find(({ shelf }) => shelf === 'plugins')?.directory
  const present = rows.map(row => presentRow(rollback.layout, row, directory))
  const installed = present.map(row => ({ ...placeOf(row), installed: row }))
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
    lacking.push(`${describeProjectVersion(version)} needs ${found.missing.join(', ')}`)
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
  const earlier = known
    .slice(0, -1)
    .filter(({ parts }) => isInstalledBefore(parts, present?.parts ?? []))
    .reverse()
  if (toVersion === undefined) return earlier
  const isAsked = ({ version }: ProjectVersion): boolean => isSameVersion(version, toVersion)
  if (present === undefined || !isAsked(present)) return known.filter(isAsked).slice(-1)
  const asked = earlier.filter(isAsked)
  return asked.length === 0 ? [present] : asked
}

function describeProjectVersion({ version, parts }: ProjectVersion): string {
  const sourced = parts.filter(({ source }) => source !== undefined)
  if (sourced.length === 0) return version
  return `${version} with ${listNames(sourced.map(part => `${placeName(placeOf(part))} ${part.version}`))}`
}

async function findParts(
  rollback: RunningRollback,
  { slug, parts }: ProjectVersion,
): Promise<{ parts: TargetPart[]; missing: string[] }> {
  const found: TargetPart[] = []
  const missing: string[] = []
  for (const part of parts) {
    const target = await findTargetPart(rollback, { contract: 'project', slug }, part)
    if (typeof target === 'string') missing.push(target)
    else found.push(target)
  }
  return { parts: found, missing }
}

/** Returns the part, or a description of what is missing if the part cannot be restored. */
async function findTargetPart(
  rollback: RunningRollback,
  origin: Origin,
  part: ProjectPart,
): Promise<TargetPart | string> {
  const { kind: _, id: __, directory: ___, ...returning } = part
  const place = placeOf(part)
  const target = { place, origin, returning }
  const record = readHostRecord(rollback.layout)
  const row = findInstalled(record.installed, place)
  if (row !== undefined && isFrom(row, origin) && isSameTree(row, part)) {
    const present = placeOf(presentRow(rollback.layout, row, place.directory))
    return (await isPlaceIntact(rollback, present)) ? keepInstalled(rollback, target) : changedPart(place)
  }
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

/** The version that a rollback restores. */
export interface RollbackTarget {
  readonly version: string
  readonly origin: InstallOrder['origin']
  readonly parts: readonly TargetPart[]
  /** The installed parts that this version does not contain. */
  readonly removals: readonly InstalledPart[]
  /** Set for a project. */
  readonly plugins: DeploymentFacts['plugins'] | undefined
}

/** A part before its settings are known. */
export type TargetPart = Omit<RetainedPart, 'environment'> | Omit<IntactPart, 'environment'>

/** The version of a part that a rollback restores, and its place. */
interface Returning {
  readonly place: Place
  readonly origin: Origin
  readonly returning: ReturningVersion
}

/** True if no file of the version installed in a place is missing or changed. Additional files do no harm. */
async function isPlaceIntact({ drift }: RunningRollback, place: Place): Promise<boolean> {
  const found = await drift.of(place)
  return found !== undefined && isOnlyAdded(found)
}

/** Builds a part that stays in its place. */
function keepInstalled({ layout }: RunningRollback, { place, returning }: Returning): TargetPart {
  const previous = readPreviousInstall(layout, place)
  return { ...place, ...targetVersion(returning), previous, intact: identityOf(returning), returning }
}

/**
 * Builds a part whose snapshot returns, together with the host's own files that this or a later snapshot contains.
 * These files are not compared.
 */
function takeRetained(
  { layout, keepPathsOf }: RunningRollback,
  { place, origin, returning }: Returning,
  retained: SnapshotRow,
): TargetPart {
  const allPaths = uniteKeepPaths(keepPathsOf(place), retained.keep_paths, retained.kept_paths)
  const previous = readPreviousInstall(layout, place)
  const newest = findLeftBehind(layout, { ...place, previous }, origin)
  const leftBehind = newest === join(snapshotsPath(layout, place), retained.name) ? undefined : newest
  return { ...place, ...targetVersion(returning), previous, retained, returning, keepPaths: allPaths, leftBehind }
}

function targetVersion({
  version,
  artifact_sha256: artifactSha256,
}: InstalledVersion): Pick<TargetPart, 'version' | 'artifactSha256'> {
  return { version: version ?? 'unknown', artifactSha256 }
}
