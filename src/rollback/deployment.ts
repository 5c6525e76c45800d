import {
  type DeploymentTools,
  type RunningDeployment,
  startDeployment as startOnHost,
} from '../install/deployment/deployment.ts'
import { findInstalled, readHostRecord, readInstalled } from '../install/host/installed/host-record.ts'
import { snapshotsFrom } from '../install/host/installed/origin.ts'
import { placeOf } from '../install/host/installed/row-place.ts'
import type { InstalledRow } from '../install/host/installed/rows.ts'
import { uniteKeepPaths } from '../install/host/keep-paths.ts'
import type { Layout } from '../install/host/layout.ts'
import type { ReportSender } from '../install/reports/report-sender.ts'
import type { DeploymentFacts } from '../install/transaction/facts.ts'
import type { IncompleteRollback, RollbackRequest, Subject } from './request.ts'
import { ROLLBACK_TRANSITIONS, type RollbackState } from './states.ts'

export interface RunningRollback extends RunningDeployment<RollbackState> {
  readonly request: RollbackRequest
}

/** Starts a rollback. `sender` is undefined if no hub gets a report of the rollback. */
export function startRollback(
  request: RollbackRequest,
  tools: DeploymentTools,
  sender: ReportSender | undefined,
): RunningRollback {
  const deployment = startOnHost<RollbackState>(request, tools, {
    transitions: ROLLBACK_TRANSITIONS,
    facts: initialFacts(request, tools),
    sender,
    recordedKeepPaths: layout => readKeepPaths(layout, request),
  })
  return Object.assign(deployment, { request })
}

/**
 * Returns the keep-paths that the installed version was installed with, and the kept paths of a project's removed
 * parts. They apply in addition to this run's `keep-paths`.
 */
function readKeepPaths(layout: Layout, request: RollbackRequest): string[] {
  try {
    const installed = readInstalledRows({ layout }, request.subject).flatMap(row => row.keep_paths ?? [])
    return uniteKeepPaths(installed, leftByRemovedParts(layout, request))
  } catch {
    // A later step reads the same record again and reports its problem.
    return []
  }
}

/** Returns the rows of a rollback's subject in this action's record; none if the subject is not installed. */
export function readInstalledRows({ layout }: Pick<RunningRollback, 'layout'>, subject: Subject): InstalledRow[] {
  const rows = readInstalled(layout)
  if (subject.contract === 'project')
    return rows.filter(({ contract, slug }) => contract === 'project' && slug === subject.projectId)
  const row = findInstalled(rows, placeOf(subject))
  return row === undefined ? [] : [row]
}

/** Returns the kept paths in the snapshots of a project's removed parts: these paths return with the parts. */
function leftByRemovedParts(layout: Layout, { subject }: RollbackRequest): string[] {
  if (subject.contract !== 'project') return []
  const origin = { contract: subject.contract, slug: subject.projectId }
  const snapshots = readHostRecord(layout).removed.flatMap(row => snapshotsFrom(row, origin))
  return snapshots.flatMap(snapshot => snapshot.kept_paths ?? [])
}

/** Returns the facts about a rollback that are known before it starts; each unknown one is null. */
export function initialFacts(
  { subject, slug, toVersion, hostId }: IncompleteRollback,
  { deploymentId, now, runner }: Pick<DeploymentTools, 'deploymentId' | 'now' | 'runner'>,
): DeploymentFacts {
  return {
    deployment_id: deploymentId,
    ...namesOf(subject, slug),
    requested_version: toVersion ?? null,
    version: null,
    version_source: null,
    previous_version: null,
    rollback_of: null,
    artifact_sha256: null,
    artifact_size: null,
    repo: null,
    host_id: hostId ?? '',
    started_at: now().toISOString(),
    run: runner.workflow,
  }
}

type Names = Pick<DeploymentFacts, 'contract' | 'kind' | 'slug' | 'id'>

function namesOf(subject: IncompleteRollback['subject'], slug: string | undefined): Names {
  if (subject?.contract === 'project') return { contract: 'project', kind: null, slug: subject.projectId, id: null }
  const { kind = null, id = null } = subject ?? {}
  return { contract: 'marketplace', kind, slug: slug ?? null, id }
}
