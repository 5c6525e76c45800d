import type { SnapshotRow } from '../host/installed/rows.ts'
import { type PartName, placeName, snapshotsPath } from '../host/layout.ts'
import { chooseRetained, existingSnapshots, isGenuine, type Retention } from '../host/snapshots.ts'
import type { StepContext } from '../steps/step-context.ts'
import type { Deployment } from '../transaction/context.ts'

/** The snapshots of a place before retention. */
export interface Candidates {
  readonly recorded: readonly SnapshotRow[]
  /** The snapshot to which this deployment moved the old tree. */
  readonly replaced: SnapshotRow | undefined
  /** Whether `replaced` may stay. */
  readonly isRetained: boolean
}

/** Decides which snapshots of a place stay. The others are removed only after the commit. */
export function retain(
  { deployment }: StepContext,
  place: PartName,
  { recorded, replaced, isRetained }: Candidates,
): { snapshots: SnapshotRow[]; discard: string[] } {
  const known = existingSnapshots(snapshotsPath(deployment.layout, place), recorded)
  const retention = chooseRetained(
    replaced && isRetained ? [...known, replaced] : known,
    deployment.request.keepSnapshots,
  )
  logRetention(deployment, place, retention)
  const discarded = replaced && !isRetained ? [...retention.discard, replaced] : retention.discard
  return {
    snapshots: retention.keep,
    discard: discarded.map(({ name }) => `.hub-deploy/snapshots/${placeName(place)}/${name}`),
  }
}

/** Logs why each of these snapshots stays or will be removed. */
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
