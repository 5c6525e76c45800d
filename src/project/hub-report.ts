import { toDeployError } from '../core/errors.ts'
import type { LocalReport } from '../install/reports/local-report.ts'
import type { Delivery, ReportSender } from '../install/reports/outbox.ts'
import { refusalOf } from './answers.ts'
import type { ReportBody } from './bodies.ts'
import type { ProjectClient } from './client.ts'

const RETRIED_STATUSES: ReadonlySet<number> = new Set([408, 429])

/** Tells the hub of deployments of one project (contract 4.2). A sender without a token gets one by itself. */
export function createReportSender(
  client: Pick<ProjectClient, 'sendReport'>,
  hubUrl: string,
  projectId: string,
): ReportSender {
  return {
    address: `${hubUrl.replace(/\/+$/, '')}/v1/deployments/report ${projectId}`,
    async send(report, { retry, timeoutMs }): Promise<Delivery> {
      try {
        const answer = await client.sendReport(buildReportBody(report, projectId), retry, timeoutMs)
        const { status, attempts } = answer
        if (status >= 200 && status < 300) return { accepted: true, attempts }
        const error = refusalOf('report', answer, `project ${projectId}`).message
        return { accepted: false, attempts, status, error, final: status < 500 && !RETRIED_STATUSES.has(status) }
      } catch (error) {
        return { accepted: false, attempts: 1, status: null, error: toDeployError(error).message, final: false }
      }
    },
  }
}

/** The body of a report, its fields those of contract 2.2; `version` is what the run was about. */
export function buildReportBody(report: LocalReport, projectId: string): ReportBody {
  return {
    project_id: projectId,
    deployment_id: report.deployment_id,
    status: report.status,
    version: report.version ?? report.requested_version ?? 'unknown',
    started_at: report.started_at,
    completed_at: report.completed_at,
    plugins: (report.plugins ?? []).map(({ id, version }) => ({ id, version })),
  }
}
