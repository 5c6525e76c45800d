import { join } from 'node:path'
import { isSameVersion } from '../core/trust/versions.ts'
import { isModified } from '../install/host/drift-check.ts'
import { type InstalledRow, placeOf, type SnapshotRow, snapshotsFrom } from '../install/host/installed.ts'
import { type Place, snapshotsPath } from '../install/host/layout.ts'
import { readPreviousInstall } from '../install/host/previous-install.ts'
import { checkHost } from '../install/host/readiness.ts'
import { existingSnapshots, isGenuine } from '../install/host/snapshots.ts'
import { requireMovableTree } from '../install/host/switchable.ts'
import { identityOf } from '../install/host/tree-record.ts'
import type { InstalledPart, IntactPart, RetainedPart } from '../install/steps/part.ts'
import type { InstallOrder } from '../install/steps/step-context.ts'
import type { RunningRollback } from './deployment.ts'
import { noteInstalledVersion } from './installed-version.ts'
import { noSnapshot, notInstalled, requireOwnPart, unrecorded } from './refusals.ts'
import type { Subject } from './request.ts'

/** A part before it is known which settings it reads. */
export type TargetPart = Omit<RetainedPart, 'environment'> | Omit<IntactPart, 'environment'>

/** The version that a rollback restores. */
export interface Target {
  readonly version: string
  readonly origin: InstallOrder['origin']
  /** Where this host has something of it now. */
  readonly installed: readonly Place[]
  readonly parts: readonly TargetPart[]
  /** What that version did not contain. */
  readonly removals: readonly InstalledPart[]
}

/**
 * Finds the snapshot to restore, and checks that this host can switch to it; a dry run only reads. Throws
 * DeploymentError `no_snapshot`, which names those that there are, `snapshot_modified`, `place_taken`,
 * `host_not_writable`, `unsafe_host` or `disk_full`.
 */
export async function findTarget(rollback: RunningRollback): Promise<Target> {
  const { record, request } = rollback
  const rows = await noteInstalledVersion(rollback)
  const target = await findPartTarget(rollback, rows[0])
  const [artifact = null] = new Set(target.parts.map(({ artifactSha256 }) => artifactSha256))
  await record.update({ version: target.version, version_source: 'snapshot', artifact_sha256: artifact })
  if (!request.dryRun) for (const part of target.parts) requireRestorable(rollback, part)
  return target
}

async function findPartTarget(rollback: RunningRollback, row: InstalledRow | undefined): Promise<Target> {
  const { request, record } = rollback
  const { toVersion } = request
  const place = placeOf(request.subject as Extract<Subject, { contract: 'marketplace' }>)
  if (row === undefined) throw notInstalled(request.subject)
  requireOwnPart(row, { place, slug: record.facts.slug })
  const { slug, version } = row
  const isCurrent = toVersion !== undefined && version !== null && isSameVersion(toVersion, version)
  const isWhole = isCurrent && (await isIntact(rollback, place))
  const part = isWhole ? keep(rollback, place, row) : retain(rollback, place, chooseSnapshot(rollback, place, row))
  return {
    version: part.version,
    origin: { contract: 'marketplace', slug, project_version: null },
    installed: [place],
    parts: [part],
    removals: [],
  }
}

async function isIntact({ drift }: RunningRollback, place: Place): Promise<boolean> {
  const found = await drift.of(place)
  return found !== undefined && !isModified(found)
}

/** The newest one that nobody has modified, of the version that was asked for; of a named version also a modified one. */
function chooseSnapshot({ layout, request }: RunningRollback, place: Place, row: InstalledRow): SnapshotRow {
  const { toVersion } = request
  const known = existingSnapshots(snapshotsPath(layout, place), snapshotsFrom(row, row))
  const asked = known.filter(({ version }) => toVersion === undefined || isNamed(version, toVersion))
  const recorded = asked.filter(({ tree_digest: digest }) => digest !== null)
  const chosen = recorded.findLast(isGenuine) ?? (toVersion === undefined ? undefined : recorded.at(-1))
  if (chosen !== undefined) return chosen
  const [unknown] = toVersion === undefined ? [] : asked
  if (unknown !== undefined) throw unrecorded(join(snapshotsPath(layout, place), unknown.name))
  throw noSnapshot(place, { toVersion, known })
}

function isNamed(version: string | null, asked: string): boolean {
  return version !== null && isSameVersion(version, asked)
}

function keep({ layout }: RunningRollback, place: Place, row: InstalledRow): TargetPart {
  const previous = readPreviousInstall(layout, place)
  const version = row.version ?? 'unknown'
  return { ...place, version, artifactSha256: row.artifact_sha256, previous, intact: identityOf(row) }
}

function retain({ layout, request }: RunningRollback, place: Place, retained: SnapshotRow): TargetPart {
  const { name: _, origin: __, kept_paths: kept = [], ...returning } = retained
  const version = returning.version ?? 'unknown'
  const keepPaths = [...new Set([...request.keepPaths, ...kept])]
  const previous = readPreviousInstall(layout, place)
  return { ...place, version, artifactSha256: returning.artifact_sha256, previous, retained, returning, keepPaths }
}

function requireRestorable(rollback: RunningRollback, part: TargetPart): void {
  const { layout } = rollback
  checkHost(rollback, { shelf: part.shelf, id: part.id })
  if (part.retained === undefined) return
  const root = join(snapshotsPath(layout, part), part.retained.name)
  requireMovableTree(layout, { root, keepPaths: part.keepPaths })
}
