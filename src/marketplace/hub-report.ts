import { toDeployError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { LocalReport } from '../install/reports/local-report.ts'
import type { Delivery, ReportSender } from '../install/reports/outbox.ts'
import { parseErrorText, type ReportBody } from './bodies.ts'
import type { MarketplaceClient, MarketplaceSubject } from './client.ts'

const MAX_ERROR_MESSAGE_CHARS = 2000
const RETRIED_STATUSES: ReadonlySet<number> = new Set([408, 429])

/** Tells the hub of deployments of one plugin or service, best-effort (contract 4.3, rules 7 and 8). */
export function createReportSender(
  client: MarketplaceClient,
  deploymentsBase: string,
  subject: MarketplaceSubject,
): ReportSender {
  return {
    address: reportAddress(deploymentsBase, subject),
    async send(report, { retry, timeoutMs }): Promise<Delivery> {
      try {
        const { status, body, attempts } = await client.sendReport(buildReportBody(report, subject), retry, timeoutMs)
        if (status >= 200 && status < 300) return { accepted: true, attempts }
        const told = parseErrorText(body)
        const error = `the hub answered ${status}${told === undefined ? '' : ` (${cleanForeignText(told)})`}`
        return { accepted: false, attempts, status, error, final: status < 500 && !RETRIED_STATUSES.has(status) }
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

function reportAddress(deploymentsBase: string, { kind, slug }: MarketplaceSubject): string {
  return `${deploymentsBase.replace(/\/+$/, '')}/deployments/report ${kind} ${slug}`
}
