import { dirname, join, relative } from 'node:path'
import { makePrivateDirectories } from '../files/durable-files.ts'
import { findInstalled, readHostRecord } from '../host/installed/host-record.ts'
import { installPath, type Place, snapshotsPath } from '../host/layout.ts'
import { nextSnapshotName } from '../host/snapshots.ts'
import { requireSwitchable } from '../host/switchable.ts'
import { isModified } from '../host/trees/drift-check.ts'
import type { StepContext } from './step-context.ts'

export interface Snapshot {
  name: string
  /** Absolute. */
  path: string
}

/**
 * Moves what is installed at a place to the snapshots, under the next number and its version. Throws DeploymentError
 * `unsafe_host` when it cannot be moved any more.
 */
export async function moveToSnapshot(
  { deployment, transaction }: Pick<StepContext, 'deployment' | 'transaction'>,
  place: Place,
  version: string | null,
): Promise<Snapshot> {
  const { layout } = deployment
  requireSwitchable(deployment, place)
  const folder = snapshotsPath(layout, place)
  const { installed, removed } = readHostRecord(layout)
  // A snapshot that this deployment restores has left the folder, and its name is still recorded.
  const name = nextSnapshotName(folder, version, findInstalled([...installed, ...removed], place)?.snapshots)
  // Only ours, and nothing while they are empty: these need no journal.
  await makePrivateDirectories(dirname(folder))
  await makePrivateDirectories(folder)
  const [from, path] = [installPath(layout, place), join(folder, name)]
  await transaction.apply({ type: 'move', from: relative(layout.root, from), to: relative(layout.root, path) })
  const drift = await deployment.drift.of(place)
  if (isModified(drift)) deployment.tools.log.info(`${from}, which was changed on this host, is now ${path}.`)
  return { name, path }
}
