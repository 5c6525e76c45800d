import { dirname, join, relative } from 'node:path'
import { makePrivateDirectories } from '../../files/durable-files.ts'
import { findInstalled, readHostRecord } from '../../host/installed/host-record.ts'
import { installPath, type Place, snapshotsPath } from '../../host/layout.ts'
import { nextSnapshotName } from '../../host/snapshots.ts'
import { requireSwitchable } from '../../host/switchable.ts'
import { isModified } from '../../host/trees/drift-check.ts'
import type { PlannedMove } from '../../transaction/changes/move.ts'
import type { Deployment } from '../../transaction/context.ts'

/** The future place of an installed tree that is replaced or removed. */
export interface NextSnapshot {
  readonly name: string
  /** Absolute. */
  readonly path: string
  readonly move: PlannedMove
}

/**
 * Plans the snapshot of the tree that is installed at a place, named with the next number and `version`. Throws as
 * `requireSwitchable` does, for example if the tree can no longer be moved.
 */
export async function nextSnapshot(
  deployment: Deployment,
  place: Place,
  version: string | null,
): Promise<NextSnapshot> {
  const { layout } = deployment
  requireSwitchable(deployment, place)
  const folder = snapshotsPath(layout, place)
  const { installed, removed } = readHostRecord(layout)
  // A snapshot that this deployment restores has left the folder, but its name is still recorded.
  const name = nextSnapshotName(folder, version, findInstalled([...installed, ...removed], place)?.snapshots)
  // These folders belong to this action alone and mean nothing while they are empty, so they need no journal.
  await makePrivateDirectories(dirname(folder))
  await makePrivateDirectories(folder)
  const [from, path] = [installPath(layout, place), join(folder, name)]
  return { name, path, move: { type: 'move', from: relative(layout.root, from), to: relative(layout.root, path) } }
}

/** Logs the new place of a tree that was modified on this host. */
export async function announceModified(deployment: Deployment, place: Place, { path }: NextSnapshot): Promise<void> {
  const drift = await deployment.drift.of(place)
  const from = installPath(deployment.layout, place)
  if (isModified(drift)) deployment.tools.log.info(`${from}, which was changed on this host, is now ${path}.`)
}
