import {
  type DeploymentTools,
  type RunningDeployment,
  startDeployment as startOnHost,
} from '../install/deployment/deployment.ts'
import type { ReportSender } from '../install/reports/outbox.ts'
import type { DeploymentFacts } from '../install/transaction/facts.ts'
import type { IncompleteRollback, RollbackRequest } from './request.ts'
import { ROLLBACK_TRANSITIONS, type RollbackState } from './states.ts'

/** One rollback. */
export interface RunningRollback extends RunningDeployment<RollbackState> {
  readonly request: RollbackRequest
}

/** `sender` is undefined when the rollback is reported to no hub. */
export function startRollback(
  request: RollbackRequest,
  tools: DeploymentTools,
  sender: ReportSender | undefined,
): RunningRollback {
  const start = { transitions: ROLLBACK_TRANSITIONS, facts: initialFacts(request, tools), sender }
  return Object.assign(startOnHost<RollbackState>(request, tools, start), { request })
}

/** What is known of a rollback before it starts. */
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
