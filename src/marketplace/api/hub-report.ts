import { toDeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import type { Delivery, ReportSender } from '../../install/reports/outbox.ts'
import { isTransientStatus } from '../../net/retries.ts'
import { parseErrorText, type ReportBody } from './bodies.ts'
import type { MarketplaceAccess, MarketplaceClient, MarketplaceSubject } from './client.ts'

const MAX_ERROR_MESSAGE_CHARS = 2000

/** Reports deployments of one plugin or service to the hub, best-effort (contract 4.3, rules 7 and 8). */
export function createReportSender(
  client: Pick<MarketplaceClient, 'sendReport'>,
  subject: Omit<MarketplaceAccess, 'apiKey'>,
): ReportSender {
  return {
    address: reportAddress(subject),
    async send(report, limits): Promise<Delivery> {
      try {
        const { status, body, attempts } = await client.sendReport(buildReportBody(report, subject), limits)
        if (status >= 200 && status < 300) return { accepted: true, attempts }
        const reason = parseErrorText(body)
        const error = `the hub answered ${status}${reason === undefined ? '' : ` (${cleanForeignText(reason)})`}`
        return { accepted: false, attempts, status, error, final: !isTransientStatus(status) }
      } catch (error) {
        return { accepted: false, attempts: 1, status: null, error: toDeployError(error).message, final: false }
      }
    },
  }
}

export function buildReportBody(report: LocalReport, { kind, slug }: MarketplaceSubject): ReportBody {
  return {
    kind,
    slug,
    version: report.version ?? report.requested_version ?? 'unknown',
    status: report.status,
    started_at: report.started_at,
    completed_at: report.completed_at,
    host_id: report.host_id,
    repo: report.repo,
    error_message: report.error === null ? null : report.error.message.slice(0, MAX_ERROR_MESSAGE_CHARS),
  }
}

function reportAddress({ bases, kind, slug }: Omit<MarketplaceAccess, 'apiKey'>): string {
  return `${bases.deployments.replace(/\/+$/, '')}/deployments/report ${kind} ${slug}`
}
