import { countInWords } from '../../core/quantities.ts'
import { findInstalled, type Installation, readInstalled } from '../host/installed/host-record.ts'
import { handOver, isFrom } from '../host/installed/origin.ts'
import { directoryIn, placeOf } from '../host/installed/row-place.ts'
import {
  type InstalledRow,
  type InstalledVersion,
  installedRowSchema,
  projectVersionSchema,
  type RemovedRow,
  removedRowSchema,
} from '../host/installed/rows.ts'
import { placeName } from '../host/layout.ts'
import { isGenuine, isIrreplaceable } from '../host/snapshots.ts'
import type { InstalledPart, Part } from '../steps/parts/part.ts'
import { noteModifiedSnapshots } from '../steps/parts/report-drift.ts'
import type { StepContext } from '../steps/step-context.ts'
import type { Deployment } from '../transaction/context.ts'
import { findReplaced } from './replaced-snapshot.ts'
import { retain } from './retained-snapshots.ts'

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
  const { installed, removed, version } = part.previous
  const replaced = findReplaced(context, part, { installed, version })
  const before = installed ?? removed
  const recorded = before === undefined ? [] : handOver(before, order.origin)
  const mustStay = replaced !== undefined && (isIrreplaceable(replaced) || !isGenuine(replaced))
  const isRetained = order.snapshot || mustStay
  const { snapshots, discard } = retain(context, part, { recorded, replaced, isRetained })
  const isUnchanged = installed !== undefined && isInstalledAlready(context, part) && !transaction.changed
  const { service_pending: _, ...row } = isUnchanged ? installed : versionOf(context, part)
  // The steps of this run may have restarted the service.
  const isPending = findInstalled(readInstalled(context.deployment.layout), part)?.service_pending === true
  const pending = isPending ? { service_pending: true as const } : {}
  return { row: { ...row, keep_paths: keepPathsOf(context.deployment, part), ...pending, snapshots }, discard }
}

/**
 * Returns the paths that the record of the part's tree leaves out. For a retained version, these include the paths that
 * were kept when it was installed.
 */
function keepPathsOf({ keepPaths }: Deployment, part: Part): string[] {
  return [...(part.retained === undefined ? keepPaths : part.keepPaths)]
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
  const replaced = findReplaced(context, part, { installed, version: installed.version })
  const recorded = installed.snapshots
  const { snapshots, discard } = retain(context, part, { recorded, replaced, isRetained: true })
  const { contract, kind, slug } = installed
  return { row: { contract, kind, slug, id, ...directoryIn(part), snapshots }, discard }
}

/**
 * Builds the version in a part's row. A version that returns keeps its recorded facts, such as the time of its
 * installation.
 */
function versionOf(context: StepContext, part: Part): Omit<InstalledRow, 'snapshots'> {
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
    installed_at: tools.now().toISOString(),
    deployment_id: record.facts.deployment_id,
    run_url: tools.runner.workflow.url,
    ...(part.source && { source: part.source }),
  }
}
