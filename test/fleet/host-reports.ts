import { type HostReports, parseHostReports } from '../../src/fleet/host-report.ts'

export const SUBJECT = { kind: 'plugin', slug: 'greeter' } as const
export const NOW = Date.parse('2026-01-02T12:00:00Z')

/** One row of a hub's answer. */
export function rowOf(host: unknown, more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  const facts = { version: '1.0.0', status: 'success', completed_at: '2026-01-02T03:04:06.789Z', error_message: null }
  return { ...SUBJECT, host_id: host, ...facts, ...more }
}

export function parsed(rows: unknown): HostReports {
  return parseHostReports(rows, SUBJECT, { redact: text => text, now: NOW })
}
