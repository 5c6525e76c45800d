import { monotonicMs } from '../../core/monotonic.ts'
import type { ReportSender } from './report-sender.ts'

/**
 * Limits a sender to `totalMs` milliseconds from now, for all its reports together. A report that is sent later counts
 * as not accepted, so it waits in the outbox.
 */
export function limitSender(sender: ReportSender, totalMs: number): ReportSender {
  const endsAt = monotonicMs() + totalMs
  return {
    address: sender.address,
    async send(report, limits) {
      const timeoutMs = Math.min(limits.timeoutMs, endsAt - monotonicMs())
      if (timeoutMs >= 1) return await sender.send(report, { ...limits, timeoutMs })
      return {
        accepted: false,
        attempts: 0,
        status: null,
        error: 'Other reports used up the time for this one.',
        final: false,
      }
    },
  }
}
