import { isTransientStatus } from '../../net/retries.ts'
import type { LocalReport } from './local-report.ts'

/**
 * The result of sending a report. `status` is the status of the hub's answer, or null if there was none. `final` means
 * that sending the report again would not help. `denied` means that the report needs other credentials.
 */
export type Delivery = { accepted: true; attempts: number } | Undelivered
export type Undelivered = {
  accepted: false
  attempts: number
  status: number | null
  error: string
  final: boolean
  denied?: boolean
}

/**
 * Builds the result for a refusal by the hub. The status determines whether sending the report again can help: later
 * after a 408, 429 or 5xx, with other credentials after a 401 or 403, otherwise never.
 */
export function refused(status: number, { attempts, error }: { attempts: number; error: string }): Delivery {
  const denied = status === 401 || status === 403
  return { accepted: false, attempts, status, error, final: !denied && !isTransientStatus(status), denied }
}

/**
 * Returns what the hub did instead of accepting a report. Without an answer, nobody knows whether the hub has the
 * report.
 */
export function refusalVerb({ status, denied }: Undelivered): string {
  return status === null && denied !== true ? 'did not confirm' : 'did not accept'
}

/**
 * Sends reports to the hub; there is one sender for each contract. Never throws: reporting changes no outcome (contract
 * 4.3, rule 8).
 */
export interface ReportSender {
  /**
   * Names the hub and the plugin, service or project, but not the credentials. Only a run that reports to the same
   * address may send a waiting report.
   */
  readonly address: string
  send(report: LocalReport, limits: ReportLimits): Promise<Delivery>
}

export interface ReportLimits {
  readonly retry: boolean
  /** In total, including retries. */
  readonly timeoutMs: number
  /** Ends the sending early. */
  readonly signal?: AbortSignal | undefined
}
