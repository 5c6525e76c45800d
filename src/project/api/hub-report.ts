import { AuthenticationError, toDeployError } from '../../core/errors.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import { type Delivery, type ReportSender, refused } from '../../install/reports/report-sender.ts'
import { attemptsBefore } from '../../net/retries.ts'
import { refusalOf } from './answers.ts'
import type { ReportBody } from './bodies.ts'
import type { ProjectClient } from './client.ts'
import type { ProjectAccess } from './session.ts'

/**
 * Reports deployments of one project to the hub (contract 4.2). If there is no access token yet, the sender gets one.
 */
export function createReportSender(
  client: Pick<ProjectClient, 'sendReport'>,
  { hubUrl, projectId }: Pick<ProjectAccess, 'hubUrl' | 'projectId'>,
): ReportSender {
  return {
    address: `${hubUrl.replace(/\/+$/, '')}/v1/deployments/report ${projectId}`,
    async send(report, limits): Promise<Delivery> {
      try {
        const answer = await client.sendReport({ body: buildReportBody(report, projectId), ...limits })
        const { status, attempts } = answer
        if (status >= 200 && status < 300) return { accepted: true, attempts }
        const error = refusalOf({ call: 'report', subject: `project ${projectId}` }, answer).message
        return refused(status, { attempts, error })
      } catch (error) {
        const { message } = toDeployError(error)
        const denied = error instanceof AuthenticationError
        return { accepted: false, attempts: attemptsBefore(error), status: null, error: message, final: false, denied }
      }
    },
  }
}

/**
 * Builds the body of a report with the fields of contract 2.2. `version` is the version that the run deployed or tried
 * to deploy, else the requested one (which may be `latest`), else `unknown`.
 */
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
