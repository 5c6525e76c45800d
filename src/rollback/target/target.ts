import { join } from 'node:path'
import { directoryIn, placeOf } from '../../install/host/installed/row-place.ts'
import type { Origin } from '../../install/host/installed/rows.ts'
import { isSamePlace, snapshotsPath } from '../../install/host/layout.ts'
import { requireSafeDestination } from '../../install/host/ownership/ownership.ts'
import { formerPlace } from '../../install/host/previous-install.ts'
import { checkHost } from '../../install/host/readiness.ts'
import { verifyDestination } from '../../install/host/relocation.ts'
import { requireMovableTree } from '../../install/host/switchable.ts'
import type { InstalledPart } from '../../install/steps/parts/part.ts'
import type { DeploymentFacts } from '../../install/transaction/facts.ts'
import type { RunningRollback } from '../deployment.ts'
import { noteInstalledVersion } from '../installed-version.ts'
import { notInstalled } from '../refusals.ts'
import { findPartTarget } from './part-target.ts'
import { findProjectTarget } from './project-target.ts'
import type { Target, TargetPart } from './target-part.ts'

/**
 * Finds the snapshots to restore, and checks that this host can switch to them. A dry run only reads. Throws
 * DeploymentError `no_snapshot` (which lists the versions that could be restored), `snapshot_modified`, `place_taken`,
 * `host_not_writable`, `unsafe_host`, `disk_full` or `inconsistent`, and ConfigError `invalid_input` if a slug other
 * than the requested one is installed.
 */
export async function findTarget(rollback: RunningRollback): Promise<Target> {
  const { record, request } = rollback
  const target = await choose(rollback)
  const { version } = target
  const known = { version, version_source: 'snapshot', ...identityIn(target), ...placeIn(target) }
  await record.update(known)
  if (!request.dryRun)
    for (const part of [...target.parts, ...target.removals]) await requireRestorable(rollback, part, target.origin)
  return target
}

/** A project's plugins, or else the directory of the only part. */
function placeIn({ parts: [part], plugins }: Target): Partial<DeploymentFacts> {
  if (plugins !== undefined) return { plugins }
  return part === undefined ? {} : directoryIn(part)
}

/** A tree that was changed on this host no longer has its artifact's digest. */
function identityIn({ parts }: Target): Pick<DeploymentFacts, 'artifact_sha256' | 'modified'> {
  if (parts.some(({ returning }) => returning?.modified)) return { artifact_sha256: null, modified: true }
  const [artifact = null] = parts.map(({ artifactSha256 }) => artifactSha256)
  return { artifact_sha256: artifact }
}

async function choose(rollback: RunningRollback): Promise<Target> {
  const { subject } = rollback.request
  const rows = await noteInstalledVersion(rollback)
  const [row] = rows
  if (row === undefined) throw notInstalled(subject)
  return subject.contract === 'project'
    ? await findProjectTarget(rollback, subject.projectId, rows)
    : await findPartTarget(rollback, placeOf(row), row)
}

/** Checks both directories if a part moves: an earlier version of a project may have used another plugins directory. */
async function checkDestination(rollback: RunningRollback, target: TargetPart, origin: Origin): Promise<void> {
  const { host, layout, request, tools } = rollback
  const { previous } = target
  const former = formerPlace(previous, origin)
  if (isSamePlace(former, target)) return
  for (const directory of [target.directory, former.directory])
    for (const accepted of requireSafeDestination(host, directory)) tools.log.warning(accepted)
  const keepPaths = 'keepPaths' in target ? target.keepPaths : rollback.keepPaths
  const { allowTakeover } = request
  await verifyDestination({ layout, keepPaths }, { target, previous, chosenBy: 'rollback', allowTakeover, origin })
  checkHost(rollback, previous.place)
}

async function requireRestorable(
  rollback: RunningRollback,
  part: TargetPart | InstalledPart,
  origin: Origin,
): Promise<void> {
  const { layout } = rollback
  if ('previous' in part) await checkDestination(rollback, part, origin)
  checkHost(rollback, part)
  if (!('retained' in part) || part.retained === undefined) return
  const root = join(snapshotsPath(layout, part), part.retained.name)
  requireMovableTree(layout, { root, keepPaths: part.keepPaths })
}
