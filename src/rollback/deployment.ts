import type { Kind } from '../core/identifiers.ts'
import type { Transitions } from '../core/state-machine.ts'
import type { SourceFile } from '../core/yaml/problems.ts'
import { placeOf } from '../install/host/layout.ts'
import { versionAtStart } from '../install/host/previous-install.ts'
import { findInstalled, readHostRecord } from '../install/host/record.ts'
import type { InstalledRow, RemovedRow } from '../install/host/rows.ts'
import type { DeploymentFacts } from '../install/journal/facts.ts'
import { newestProjectVersion } from '../install/reports/local-report.ts'
import type { Links, Started, Subject } from '../install/run/contract.ts'
import { PLAN_TRANSITIONS, type PlanState } from '../install/run/deployment.ts'
import type { HostRequest } from '../install/transaction/record.ts'

export type RunningRollback = Started<RollbackRequest, RollbackState, Links>

/** Returns what a rollback knows of itself. `sender` returns undefined if no hub gets a report of the rollback. */
export function subjectOf<Request extends RollbackRequest>(sender: Subject<Request>['sender']): Subject<Request> {
  return {
    named: ({ subject, slug, toVersion }) => ({
      ...subjectNames(subject, slug),
      requested_version: toVersion ?? null,
      rollback_of: null,
    }),
    sender,
    isRehearsal: ({ dryRun }) => dryRun,
  }
}

type Names = Pick<DeploymentFacts, 'contract' | 'kind' | 'slug' | 'id'>

function subjectNames(subject: RollbackRequest['subject'] | undefined, slug: string | undefined): Names {
  if (subject?.contract === 'project') return { contract: 'project', kind: null, slug: subject.projectId, id: null }
  const { kind = null, id = null } = subject ?? {}
  return { contract: 'marketplace', kind, slug: slug ?? null, id }
}

/** The row of an installed part, or of one that was removed and of which this host has snapshots. */
export type KnownRow = InstalledRow | RemovedRow

/** True for the row of a part that is installed. */
export function isInstalledRow(row: KnownRow): row is InstalledRow {
  return 'version' in row
}

/**
 * Returns the rows of a rollback's subject in this action's record: of a project, those that are installed; of a plugin
 * or service, also the row of a removed one. None if the host does not know the subject.
 */
function readRows({ layout }: Pick<RunningRollback, 'layout'>, subject: RollbackSubject): KnownRow[] {
  const { installed: rows, removed } = readHostRecord(layout)
  if (subject.contract === 'project')
    return rows.filter(({ contract, slug }) => contract === 'project' && slug === subject.projectId)
  const row = findInstalled<KnownRow>([...rows, ...removed], placeOf(subject))
  return row === undefined ? [] : [row]
}

export type RollbackState = 'pending' | 'finding_snapshots' | 'verifying_snapshots' | PlanState

/** The states of a rollback. Every path to `installing` passes `verifying_snapshots`. */
export const ROLLBACK_TRANSITIONS: Transitions<RollbackState> = {
  pending: ['finding_snapshots'],
  finding_snapshots: ['verifying_snapshots', 'failed'],
  verifying_snapshots: ['loading_plan', 'failed'],
  ...PLAN_TRANSITIONS,
}

/** One plugin or service. */
export interface PartSubject {
  readonly kind: Kind
  readonly id: string
}

/** The subject of a rollback: one plugin or service, or all parts of a project. */
export type RollbackSubject =
  | ({ readonly contract: 'marketplace' } & PartSubject)
  | { readonly contract: 'project'; readonly projectId: string }

/** The operator's request: parsed, and independent of where it was read. */
export interface RollbackRequest extends HostRequest {
  subject: RollbackSubject
  /** The marketplace's name of the plugin or service. Needed only if the rollback is reported. */
  slug: string | undefined
  /** Undefined for the newest unmodified version that was first installed before the current one. */
  toVersion: string | undefined
  plan: SourceFile | undefined
}

/**
 * Records the installed version before it is known whether that version can be rolled back, so that a refused run can
 * report it.
 */
export async function noteReplacedVersion(rollback: RunningRollback): Promise<readonly KnownRow[]> {
  const { subject } = rollback.request
  const rows = readRows(rollback, subject)
  const installed = rows.filter(isInstalledRow)
  const [row] = installed
  const version =
    subject.contract === 'project' ? newestProjectVersion(installed) : row ? versionAtStart(rollback.layout, row) : null
  const slug = rollback.record.facts.slug ?? rows[0]?.slug ?? null
  await rollback.record.update({ slug, previous_version: version, rollback_of: version })
  return rows
}
