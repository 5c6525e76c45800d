import { join } from 'node:path'
import type { InstalledVersion, Origin, SnapshotRow } from '../../install/host/installed/rows.ts'
import { uniteKeepPaths } from '../../install/host/keep-paths.ts'
import { type Place, snapshotsPath } from '../../install/host/layout.ts'
import { findLeftBehind, readPreviousInstall } from '../../install/host/previous-install.ts'
import { isOnlyAdded } from '../../install/host/trees/drift-check.ts'
import { identityOf } from '../../install/host/trees/record/tree-identity.ts'
import type { InstalledPart, IntactPart, RetainedPart, ReturningVersion } from '../../install/steps/parts/part.ts'
import type { InstallOrder } from '../../install/steps/step-context.ts'
import type { DeploymentFacts } from '../../install/transaction/facts.ts'
import type { RunningRollback } from '../deployment.ts'

/** The version that a rollback restores. */
export interface Target {
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
export interface Returning {
  readonly place: Place
  readonly origin: Origin
  readonly returning: ReturningVersion
}

/** True if no file of the version installed in a place is missing or changed. Additional files do no harm. */
export async function isIntact({ drift }: RunningRollback, place: Place): Promise<boolean> {
  const found = await drift.of(place)
  return found !== undefined && isOnlyAdded(found)
}

/** Builds a part that stays in its place. */
export function keepInstalled({ layout }: RunningRollback, { place, returning }: Returning): TargetPart {
  const previous = readPreviousInstall(layout, place)
  return { ...place, ...versionOf(returning), previous, intact: identityOf(returning), returning }
}

/**
 * Builds a part whose snapshot returns, together with the host's own files that this or a later snapshot contains.
 * These files are not compared.
 */
export function takeRetained(
  { layout, keepPaths }: RunningRollback,
  { place, origin, returning }: Returning,
  retained: SnapshotRow,
): TargetPart {
  const allPaths = uniteKeepPaths(keepPaths, retained.keep_paths, retained.kept_paths)
  const previous = readPreviousInstall(layout, place)
  const newest = findLeftBehind(layout, previous, origin)
  const leftBehind = newest === join(snapshotsPath(layout, place), retained.name) ? undefined : newest
  return { ...place, ...versionOf(returning), previous, retained, returning, keepPaths: allPaths, leftBehind }
}

function versionOf({
  version,
  artifact_sha256: artifactSha256,
}: InstalledVersion): Pick<TargetPart, 'version' | 'artifactSha256'> {
  return { version: version ?? 'unknown', artifactSha256 }
}
