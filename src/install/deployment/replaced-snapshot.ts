import { join } from 'node:path'
import { isBelow } from '../../core/is-below.ts'
import { isFrom } from '../host/installed/origin.ts'
import type { InstalledRow, SnapshotRow } from '../host/installed/rows.ts'
import { presentPaths } from '../host/keep-paths.ts'
import { placeName, snapshotsPath } from '../host/layout.ts'
import { withKeptPaths } from '../host/snapshots.ts'
import { identityOf } from '../host/trees/record/tree-identity.ts'
import type { InstalledPart, Part } from '../steps/parts/part.ts'
import type { StepContext } from '../steps/step-context.ts'
import type { Deployment } from '../transaction/context.ts'

/** Returns the row of the snapshot to which the part's old tree was moved; undefined if it was not moved. */
export function findReplaced(
  { results, order, deployment }: StepContext,
  part: Part | InstalledPart,
  { installed, version }: { installed: InstalledRow | undefined; version: string | null },
): SnapshotRow | undefined {
  const { snapshot: name, modified } = results.get(placeName(part)) ?? {}
  if (name === undefined) return undefined
  const row: SnapshotRow = {
    name,
    version,
    project_version: installed?.project_version ?? null,
    artifact_sha256: installed?.artifact_sha256 ?? null,
    ...identityOf(modified ?? installed ?? { tree_digest: null }),
    installed_at: installed?.installed_at ?? null,
    deployment_id: installed?.deployment_id ?? null,
    run_url: installed?.run_url ?? null,
    ...(installed?.source && { source: installed.source }),
    ...(installed && !isFrom(installed, order.origin)
      ? { origin: { contract: installed.contract, slug: installed.slug } }
      : {}),
    ...(modified === undefined && !installed?.modified ? {} : { modified: true }),
    keep_paths: [...new Set([...(installed?.keep_paths ?? []), ...deployment.keepPaths])],
  }
  return withHostFiles(deployment, part, row)
}

/**
 * Notes in a snapshot's row the kept paths that the snapshot contains and that no newer version has taken over. A
 * snapshot with such paths is never pruned. A path that a newer version has taken over does not count, even if the
 * replaced version recreates the path before being stopped.
 */
function withHostFiles(
  { layout, keepPaths, tools }: Deployment,
  part: Part | InstalledPart,
  snapshot: SnapshotRow,
): SnapshotRow {
  const path = join(snapshotsPath(layout, part), snapshot.name)
  const takenOver = 'previous' in part && part.returning === undefined ? keepPaths : []
  const isTakenOver = isBelow(takenOver)
  const kept = presentPaths(
    path,
    (snapshot.keep_paths ?? []).filter(keep => !isTakenOver(keep)),
  )
  if (kept.length > 0) {
    const isRemoved = !('previous' in part)
    const when = `you restore the snapshot${isRemoved ? ', or when the same project installs the part again' : ''}`
    const message = `The snapshot ${path} of ${placeName(part)} contains files of this host (${kept.join(', ')}): these files stay there, and return when ${when}.`
    tools.log.notice(message)
  }
  return withKeptPaths(snapshot, kept)
}
