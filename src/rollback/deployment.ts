import type { DeployError } from '../core/errors.ts'
import type { Kind } from '../core/identifiers.ts'
import type { Transitions } from '../core/state-machine.ts'
import type { SourceFile } from '../core/yaml/problems.ts'
import { type Layout, placeOf } from '../install/host/layout.ts'
import { findInstalled, readHostRecord, readInstalled } from '../install/host/record.ts'
import { type InstalledRow, snapshotsFrom } from '../install/host/rows.ts'
import { uniteKeepPaths } from '../install/host/snapshots.ts'
import type { DeploymentFacts } from '../install/journal/facts.ts'
import type { Host } from '../install/reports/host.ts'
import { newestProjectVersion } from '../install/reports/local-report.ts'
import type { ReportSender } from '../install/reports/sender.ts'
import {
  type DeploymentTools,
  type EndedDeployment,
  hostOf,
  PLAN_TRANSITIONS,
  type PlanState,
  type RunningDeployment,
  startDeployment as startOnHost,
} from '../install/run/deployment.ts'
import { refuseDeployment } from '../install/run/refuse.ts'
import type { HostRequest } from '../install/transaction/record.ts'

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
function readInstalledRows({ layout }: Pick<RunningRollback, 'layout'>, subject: RollbackSubject): InstalledRow[] {
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
function initialFacts(
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

export type RollbackState = 'pending' | 'finding_snapshots' | 'verifying_snapshots' | PlanState

/** The states of a rollback. Every path to `installing` passes `verifying_snapshots`. */
export const ROLLBACK_TRANSITIONS: Transitions<RollbackState> = {
  pending: ['finding_snapshots'],
  finding_snapshots: ['verifying_snapshots', 'failed'],
  verifying_snapshots: ['loading_plan', 'failed'],
  ...PLAN_TRANSITIONS,
}

/** The subject of a rollback: one plugin or service, or all parts of a project. */
export type RollbackSubject =
  | { readonly contract: 'marketplace'; readonly kind: Kind; readonly id: string }
  | { readonly contract: 'project'; readonly projectId: string }

/** The operator's request: parsed, and independent of where it was read. */
export interface RollbackRequest extends HostRequest {
  subject: RollbackSubject
  /** The marketplace's name of the plugin or service. Needed only if the rollback is reported. */
  slug: string | undefined
  /** Undefined for the newest unmodified version that was first installed before the current one. */
  toVersion: string | undefined
  plan: SourceFile | undefined
  dryRun: boolean
}

/** A request with inputs that may be missing or malformed. */
export type IncompleteRollback = { [K in keyof RollbackRequest]: RollbackRequest[K] | undefined }

/** The reason for refusing a request, and the sender of its report, if the run reports to a hub. */
interface RollbackRefusal {
  readonly error: DeployError
  readonly sender: ReportSender | undefined
}

/**
 * Ends a run whose inputs cannot be used, as `refuseDeployment` does. A dry run writes and sends no report. The hub
 * gets no report either if `host-id` or `dry-run` is malformed: with the latter, the operator may have meant a dry run.
 */
export async function refuseRollback(
  request: IncompleteRollback,
  { error, sender }: RollbackRefusal,
  tools: DeploymentTools,
): Promise<EndedDeployment> {
  const isReal = request.dryRun === false && request.hostId !== undefined
  const refusal = {
    error,
    facts: initialFacts(request, tools),
    projectRoot: request.dryRun === true ? undefined : request.projectRoot,
    allowSharedRoot: request.allowSharedRoot ?? false,
    hostConfig: request.hostConfig,
    keepReports: request.keepReports,
    sender: isReal ? sender : undefined,
  }
  return await refuseDeployment(refusal, tools)
}

/** Returns the host that a request names; undefined without a project root. */
export function hostFor(
  { projectRoot, allowSharedRoot = false, hostConfig }: IncompleteRollback,
  sender: ReportSender | undefined,
  tools: DeploymentTools,
): Host | undefined {
  return projectRoot === undefined ? undefined : hostOf(tools, { projectRoot, allowSharedRoot, hostConfig, sender })
}

/**
 * Records the installed version before it is known whether that version can be rolled back, so that a refused run can
 * report it.
 */
export async function noteInstalledVersion(rollback: RunningRollback): Promise<readonly InstalledRow[]> {
  const { subject } = rollback.request
  const rows = readInstalledRows(rollback, subject)
  const version = subject.contract === 'project' ? newestProjectVersion(rows) : (rows[0]?.version ?? null)
  const slug = rollback.record.facts.slug ?? rows[0]?.slug ?? null
  await rollback.record.update({ slug, previous_version: version, rollback_of: version })
  return rows
}
