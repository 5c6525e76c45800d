import { join } from 'node:path'
import { z } from 'zod'
import { ERROR_CODES, type ErrorCode } from '../core/errors.ts'
import { type Outcome, reportStatusOf } from '../core/outcome.ts'
import { deploymentFactsSchema, stateEntrySchema, stepEntrySchema } from './deployment-facts.ts'
import type { DeploymentRecord } from './deployment-record.ts'
import { replaceFile } from './durable-files.ts'
import type { Layout } from './layout.ts'

const rollbackSchema = z.object({
  /** Whether every change was taken back. */
  restored: z.boolean(),
  /** What is off, one sentence each. */
  problems: z.array(z.string()),
  /** Whether the restored tree is what its record says; null when there was nothing to compare. */
  verified: z.boolean().nullable(),
  /** Whether the old version is healthy again; null when the plan started nothing. */
  healthy: z.boolean().nullable(),
})
export type RollbackFacts = z.infer<typeof rollbackSchema>

const reportedSchema = z.object({ accepted: z.boolean(), attempts: z.number(), error: z.string().nullable() })
export type Reported = z.infer<typeof reportedSchema>

const errorSchema = z.object({ code: z.enum(ERROR_CODES), message: z.string(), step: z.string().nullable() })

/** A deployment's report on this host (docs/contracts.md, "Local report"). Holds no secret. */
export const localReportSchema = deploymentFactsSchema.extend({
  schema: z.literal(1),
  status: z.enum(['success', 'failed', 'rolled_back']),
  outcome: z.enum(['success', 'failed', 'rolled_back', 'interrupted', 'inconsistent']),
  state: z.string(),
  changed: z.boolean(),
  completed_at: z.string(),
  duration_ms: z.number(),
  states: z.array(stateEntrySchema),
  steps: z.array(stepEntrySchema),
  error: errorSchema.nullable(),
  rollback: rollbackSchema.nullable(),
  reported: reportedSchema,
})
export type LocalReport = z.infer<typeof localReportSchema>

export interface DeploymentEnd {
  outcome: Outcome
  changed: boolean
  error: { code: ErrorCode; message: string; step: string | null } | null
  rollback: RollbackFacts | null
  completedAt: Date
}

export function buildLocalReport(record: DeploymentRecord, end: DeploymentEnd, reported: Reported): LocalReport {
  const { facts, states, steps } = record
  return {
    schema: 1,
    ...facts,
    status: reportStatusOf(end.outcome),
    outcome: end.outcome,
    state: states.at(-1)?.state ?? 'pending',
    changed: end.changed,
    completed_at: end.completedAt.toISOString(),
    duration_ms: Math.max(0, end.completedAt.getTime() - Date.parse(facts.started_at)),
    states: [...states],
    steps: [...steps],
    error: end.error,
    rollback: end.rollback,
    reported,
  }
}

/** Where a deployment's report lies; the same for whoever writes it, so that there is exactly one. */
export function localReportPath(
  layout: Layout,
  facts: { started_at: string; slug: string | null; deployment_id: string },
): string {
  return join(layout.reports, `${facts.started_at.replaceAll(':', '-')}-${facts.slug ?? facts.deployment_id}.json`)
}

/** Writes the report, redacted, by rename and 0600; returns its path. */
export async function writeLocalReport(
  layout: Layout,
  report: LocalReport,
  redact: (text: string) => string,
): Promise<string> {
  const path = localReportPath(layout, report)
  await replaceFile(path, `${redact(JSON.stringify(report, null, 2))}\n`)
  return path
}
