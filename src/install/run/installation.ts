import { join } from 'node:path'
import { isBelow } from '../../core/identifiers.ts'
import { countInWords } from '../../core/text.ts'
import { directoryIn, type PartName, placeName, placeOf, snapshotsPath } from '../host/layout.ts'
import { findInstalled, type Installation, nextInstallation, readInstalled } from '../host/record.ts'
import {
  handOver,
  type InstalledRow,
  type InstalledVersion,
  installedRowSchema,
  isFrom,
  projectVersionSchema,
  type RemovedRow,
  removedRowSchema,
  type SnapshotRow,
} from '../host/rows.ts'
import {
  chooseRetained,
  existingSnapshots,
  isGenuine,
  isIrreplaceable,
  presentPaths,
  type Retention,
  type RetentionRule,
  uniteKeepPaths,
  withKeptPaths,
} from '../host/snapshots.ts'
import { type InstalledPart, keptIn, type Part, type StepContext } from '../steps/context.ts'
import { noteModifiedSnapshots } from '../steps/drift.ts'
import type { Deployment } from '../transaction/record.ts'
import { identityOf } from '../trees/record.ts'

/**
 * Builds the installation to commit after the steps: the installed and removed parts with the snapshots to keep, the
 * snapshots to discard, and the version of a project. Throws if a later run could not read these records. Notes in the
 * report which snapshots have modified trees.
 */
export async function buildInstallation(context: StepContext): Promise<Installation> {
  const { log } = context.deployment.tools
  log.group('committing', 'at once')
  await noteModifiedSnapshots(context)
  const { parts, removals } = context.order
  const installed = parts.map(part => buildRow(context, part))
  const removed = removals.map(part => buildRemovedRow(context, part))
  return {
    rows: installed.map(({ row }) => installedRowSchema.parse(row)),
    removed: removed.map(({ row }) => removedRowSchema.parse(row)),
    discard: [...installed, ...removed].flatMap(({ discard }) => discard),
    ...versionOfProject(
      context,
      installed.map(({ row }) => row),
    ),
  }
}

/** Summarizes how many snapshots a commit keeps and discards. */
export function describeSnapshots({ rows, removed, discard }: Installation): string {
  const kept = [...rows, ...removed].reduce((sum, { snapshots }) => sum + snapshots.length, 0)
  return `${countInWords(kept, 'snapshot')} kept${discard.length === 0 ? '' : `, ${countInWords(discard.length)} discarded`}`
}

/**
 * Returns the version of a project with all of the project's parts on this host, including those that the plan left
 * alone.
 */
function versionOfProject(
  { order, deployment }: StepContext,
  rows: readonly InstalledRow[],
): Pick<Installation, 'project'> {
  const { contract, slug, project_version: version } = order.origin
  if (contract !== 'project' || version === null) return {}
  const known = new Set([...order.parts, ...order.removals].map(placeName))
  const others = readInstalled(deployment.layout).filter(
    row => isFrom(row, order.origin) && !known.has(placeName(placeOf(row))),
  )
  return { project: projectVersionSchema.parse({ slug, version, parts: [...rows, ...others] }) }
}

/** A row of `installed.json`, and the snapshots to discard. */
interface Retained<Row> {
  row: Row
  discard: string[]
}

/**
 * Builds a part's row. If the part is already installed, and the run has changed nothing that the host runs (in any
 * part), only the row's keep-paths and snapshots change.
 */
function buildRow(context: StepContext, part: Part): Retained<InstalledRow> {
  const { order, transaction } = context
  const { installed, removed } = part.previous
  const replaced = findReplaced(context, part, installed)
  const before = installed ?? removed
  const recorded = before === undefined ? [] : handOver(before, order.origin)
  const mustStay = replaced !== undefined && (isIrreplaceable(replaced) || !isGenuine(replaced))
  const isRetained = order.snapshot || mustStay
  const { snapshots, discard } = retain(context, part, { recorded, replaced, isRetained })
  const isUnchanged = installed !== undefined && isInstalledAlready(context, part) && !transaction.changed
  const { service_pending: _, pending_services: __, ...row } = isUnchanged ? installed : rowVersion(context, part)
  // The steps of this run may have restarted the service.
  const { service_pending, pending_services } = findInstalled(readInstalled(context.deployment.layout), part) ?? {}
  const pending = { ...(service_pending && { service_pending }), ...(pending_services && { pending_services }) }
  return { row: { ...row, keep_paths: keepPathsOf(context.deployment, part), ...pending, snapshots }, discard }
}

/**
 * Returns the paths that the record of the part's tree leaves out. For a retained version, these include the paths that
 * were kept when it was installed.
 */
function keepPathsOf(deployment: Deployment, part: Part): string[] {
  return uniteKeepPaths(part.retained === undefined ? keptIn(deployment, part) : part.keepPaths)
}

/**
 * True if the part's tree is installed and intact, from the same artifact, origin and source. If the same tree came
 * with another artifact, the row has to name the new artifact and project version.
 */
function isInstalledAlready(
  { order }: StepContext,
  { intact, artifactSha256, source, returning, previous: { installed } }: Part,
): boolean {
  if (intact === undefined || installed?.artifact_sha256 !== artifactSha256) return false
  return isFrom(installed, order.origin) && installed.source?.id === (returning ?? { source }).source?.id
}

/**
 * Builds the row of a removed part. The part's last tree, if it still exists, always stays as a snapshot, because no
 * newer version replaced that tree.
 */
function buildRemovedRow(context: StepContext, part: InstalledPart): Retained<RemovedRow> {
  const { id, installed } = part
  const replaced = findReplaced(context, part, installed)
  const recorded = installed.snapshots
  const { snapshots, discard } = retain(context, part, { recorded, replaced, isRetained: true })
  const { contract, kind, slug } = installed
  return { row: { contract, kind, slug, id, ...directoryIn(part), snapshots }, discard }
}

/**
 * Builds the version in a part's row. A version that returns keeps its recorded facts, such as the time of its
 * installation.
 */
function rowVersion(context: StepContext, part: Part): Omit<InstalledRow, 'keep_paths' | 'snapshots'> {
  const { contract, slug } = context.order.origin
  const kind = part.shelf === 'plugins' ? 'plugin' : 'service'
  return { contract, slug, kind, id: part.id, ...directoryIn(part), ...(part.returning ?? newVersion(context, part)) }
}

function newVersion({ deployment, order, results }: StepContext, part: Part): InstalledVersion {
  const { tools, record } = deployment
  return {
    project_version: order.origin.project_version,
    version: part.version,
    artifact_sha256: part.artifactSha256,
    ...(results.get(placeName(part))?.tree ?? { tree_digest: null }),
    installation: nextInstallation(deployment.layout),
    installed_at: tools.now().toISOString(),
    deployment_id: record.facts.deployment_id,
    run_url: tools.runner.workflow.url,
    ...(part.source && { source: part.source }),
  }
}

/** Returns the row of the snapshot to which the part's old tree was moved; undefined if it was not moved. */
export function findReplaced(
  { results, order, deployment }: StepContext,
  part: Part | InstalledPart,
  installed: InstalledRow | undefined,
): SnapshotRow | undefined {
  const { snapshot: name, version: found = null, modified } = results.get(placeName(part)) ?? {}
  if (name === undefined) return undefined
  // An operator names a modified tree of no known version by the version that it was installed as.
  const version = found ?? installed?.version ?? null
  // No artifact of the recorded version vouches for another version that somebody put in its place.
  const isRecorded = installed !== undefined && version === installed.version
  const row: SnapshotRow = {
    name,
    version,
    project_version: installed?.project_version ?? null,
    artifact_sha256: isRecorded ? installed.artifact_sha256 : null,
    ...identityOf(modified ?? installed ?? { tree_digest: null }),
    ...(installed?.installation && { installation: installed.installation }),
    installed_at: installed?.installed_at ?? null,
    deployment_id: installed?.deployment_id ?? null,
    run_url: installed?.run_url ?? null,
    retained_at: deployment.tools.now().toISOString(),
    ...(installed?.source && { source: installed.source }),
    ...(installed && !isFrom(installed, order.origin)
      ? { origin: { contract: installed.contract, slug: installed.slug } }
      : {}),
    ...(modified === undefined && !installed?.modified ? {} : { modified: true }),
    keep_paths: uniteKeepPaths(installed?.keep_paths, keptIn(deployment, part)),
  }
  return withHostFiles(deployment, part, row)
}

/**
 * Notes in a snapshot's row the kept paths that the snapshot contains and that no newer version has taken over. A
 * snapshot with such paths is never pruned. A path that a newer version has taken over does not count, even if the
 * replaced version recreates the path before being stopped.
 */
function withHostFiles(deployment: Deployment, part: Part | InstalledPart, snapshot: SnapshotRow): SnapshotRow {
  const { layout, tools } = deployment
  const path = join(snapshotsPath(layout, part), snapshot.name)
  const takenOver = 'previous' in part && part.returning === undefined ? keptIn(deployment, part) : []
  const isTakenOver = isBelow(takenOver)
  const kept = presentPaths(
    path,
    snapshot.keep_paths.filter(keep => !isTakenOver(keep)),
  )
  if (kept.length > 0) {
    const isRemoved = !('previous' in part)
    const when = `you restore the snapshot${isRemoved ? ', or when the part is deployed again' : ''}`
    const message = `The snapshot ${path} of ${placeName(part)} contains files of this host (${kept.join(', ')}): these files stay there, and return when ${when}.`
    tools.log.notice(message)
  }
  return withKeptPaths(snapshot, kept)
}

/** The snapshots of a place before retention. */
interface Candidates {
  readonly recorded: readonly SnapshotRow[]
  /** The snapshot to which this deployment moved the old tree. */
  readonly replaced: SnapshotRow | undefined
  /** Whether `replaced` may stay. */
  readonly isRetained: boolean
}

/** Decides which snapshots of a place stay. The others are removed only after the commit. */
function retain(
  { deployment }: StepContext,
  place: PartName,
  { recorded, replaced, isRetained }: Candidates,
): { snapshots: SnapshotRow[]; discard: string[] } {
  const known = existingSnapshots(snapshotsPath(deployment.layout, place), recorded)
  const retention = chooseRetained(replaced && isRetained ? [...known, replaced] : known, retentionRule(deployment))
  logRetention(deployment, place, retention)
  const discarded = replaced && !isRetained ? [...retention.discard, replaced] : retention.discard
  return {
    snapshots: retention.keep,
    discard: discarded.map(({ name }) => `.hub-deploy/snapshots/${placeName(place)}/${name}`),
  }
}

/** Returns the rule by which a run prunes what it retains. */
export function retentionRule({ request, tools }: Deployment): RetentionRule {
  return { limit: request.keepSnapshots, now: tools.now() }
}

function logRetention({ request, tools }: Deployment, place: PartName, { keep, discard }: Retention): void {
  const rule = `keep-snapshots is ${request.keepSnapshots}`
  const lastGood = keep.findLast(isGenuine)
  for (const row of keep) {
    const reason = whyIrreplaceable(row) ?? (row === lastGood ? 'it is the last good one' : rule)
    tools.log.info(`Snapshot ${row.name} of ${placeName(place)} stays: ${reason}.`)
  }
  for (const { name } of discard) tools.log.info(`Snapshot ${name} of ${placeName(place)} will be removed: ${rule}.`)
}

function whyIrreplaceable({ kept_paths: kept, modified, artifact_sha256: sha256 }: SnapshotRow): string | undefined {
  if (kept !== undefined) return `it contains this host's ${kept.join(', ')}`
  if (modified) return 'it contains changes that were made on this host'
  return sha256 === null ? 'it cannot be fetched again' : undefined
}
