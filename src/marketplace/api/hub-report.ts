import { toDeployError } from '../../core/errors.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import { type Delivery, type ReportSender, refused } from '../../install/reports/report-sender.ts'
import { attemptsBefore } from '../../net/retries.ts'
import type { ReportBody } from './bodies.ts'
import type { MarketplaceAccess, MarketplaceClient } from './client.ts'
import { namedBase } from './hub-bases.ts'
import { OWN_INPUTS } from './input-names.ts'
import { type MarketplaceSubject, saidBy, shownBase } from './refusal.ts'

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
        const answer = await client.sendReport(buildReportBody(report, subject), limits)
        const { status, attempts } = answer
        if (status >= 200 && status < 300) return { accepted: true, attempts }
        return refused(status, { attempts, error: `${saidBy(answer)}.${remedyFor(status, subject)}` })
      } catch (error) {
        const attempts = attemptsBefore(error)
        return { accepted: false, attempts, status: null, error: toDeployError(error).message, final: false }
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

function remedyFor(status: number, { bases, inputs = OWN_INPUTS }: Omit<MarketplaceAccess, 'apiKey'>): string {
  if (status !== 404) return ''
  const base = namedBase(bases, 'deployments', inputs)
  return ` The report was sent to ${shownBase(base)}: check ${base.input}.`
}

function reportAddress({ bases, kind, slug }: Omit<MarketplaceAccess, 'apiKey'>): string {
  return `${bases.deployments.replace(/\/+$/, '')}/deployments/report ${kind} ${slug}`
}
