import type { TestContext } from 'node:test'
import type { Log } from '../../src/core/log.ts'
import { type Layout, layoutOf } from '../../src/install/host/layout.ts'
import { prepareHost } from '../../src/install/host/readiness.ts'
import type { InstalledRow, RemovedRow, SnapshotRow } from '../../src/install/host/rows.ts'
import type { DeploymentFacts } from '../../src/install/journal/facts.ts'
import type { LocalReport } from '../../src/install/reports/local-report.ts'
import type { Delivery, ReportSender } from '../../src/install/reports/sender.ts'
import type { SecretKeeper } from '../../src/install/transaction/record.ts'
import { temporaryDirectory } from '../folders.ts'

export const DEPLOYMENT_ID = '7f6c7a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
export const NO_SECRETS: SecretKeeper = { redact: text => text, hide: () => {}, know: () => {} }

/** A temporary project root with its `.hub-deploy/` folders. */
export async function prepareTemporaryHost(t: TestContext): Promise<Layout> {
  const layout = layoutOf(temporaryDirectory(t))
  await prepareHost({ layout, sharedRoot: { isAllowed: false } }, collectLog())
  return layout
}

export function factsOf(more: Partial<DeploymentFacts> = {}): DeploymentFacts {
  return {
    deployment_id: DEPLOYMENT_ID,
    contract: 'marketplace',
    kind: 'plugin',
    slug: 'greeter',
    id: 'greeter',
    requested_version: 'latest',
    version: '2.0.0',
    version_source: 'plugin.yaml',
    previous_version: '1.0.0',
    artifact_sha256: 'ab'.repeat(32),
    artifact_size: 1000,
    repo: null,
    host_id: 'host-1',
    started_at: '2026-01-02T03:04:05.678Z',
    run: { workflow: null, run_id: null, run_attempt: null, job: null, actor: 'operator', url: null },
    ...more,
  }
}

export function rowOf(more: Partial<InstalledRow> = {}): InstalledRow {
  return {
    contract: 'marketplace',
    kind: 'plugin',
    slug: 'greeter',
    id: 'greeter',
    version: '2.0.0',
    project_version: null,
    artifact_sha256: 'ab'.repeat(32),
    tree_digest: null,
    installed_at: '2026-01-02T03:04:06.000Z',
    deployment_id: DEPLOYMENT_ID,
    run_url: null,
    keep_paths: [],
    snapshots: [],
    ...more,
  }
}

export function snapshotOf(name: string, more: Partial<SnapshotRow> = {}): SnapshotRow {
  const { snapshots: _, contract, kind, slug, id, ...version } = rowOf()
  return { ...version, name, ...more }
}

export function removedRowOf(more: Partial<RemovedRow> = {}): RemovedRow {
  const { contract, kind, slug, id } = rowOf()
  return { contract, kind, slug, id, snapshots: [snapshotOf('1-2.0.0')], ...more }
}

export function reportOf(more: Partial<LocalReport> = {}): LocalReport {
  return {
    schema: 1,
    ...factsOf(),
    status: 'success',
    outcome: 'success',
    running_version: '2.0.0',
    state: 'succeeded',
    changed: true,
    completed_at: '2026-01-02T03:04:07.000Z',
    duration_ms: 1322,
    states: [],
    steps: [],
    error: null,
    rollback: null,
    reported: { accepted: false, attempts: 0, error: 'not sent' },
    ...more,
  }
}

export interface RecordingSender extends ReportSender {
  readonly sent: { report: LocalReport; retry: boolean }[]
}

/** A sender that records the reports instead of sending them, and resolves to the same delivery for each. */
export function senderThat(delivery: Delivery, address = 'http://hub greeter'): RecordingSender {
  const sent: RecordingSender['sent'] = []
  return {
    address,
    sent,
    async send(report, { retry }) {
      sent.push({ report, retry })
      return delivery
    },
  }
}

export interface CollectedLog extends Log {
  /** Each line as `<level> <text>`. */
  readonly lines: string[]
}

/** A log that keeps its lines. */
export function collectLog(): CollectedLog {
  const lines: string[] = []
  const keep = (level: string) => (line: string) => void lines.push(`${level} ${line}`)
  const [group, did, info, notice, warning, error] = ['group', 'did', 'info', 'notice', 'warning', 'error'].map(keep)
  return { lines, group, did, end() {}, info, notice, warning, error } as CollectedLog
}
