import { z } from 'zod/mini'
import { ERROR_CODES } from '../../core/errors.ts'

const rollbackSchema = z.lazy(() =>
  z.object({
    /** Whether every change was taken back. */
    restored: z.boolean(),
    /** What is off, one sentence each. */
    problems: z.array(z.string()),
    /** Whether the restored tree is what its record says; null when there was nothing to compare. */
    verified: z.nullable(z.boolean()),
    /** Whether the old version is healthy again; null when there is nothing to check it by, or it did not run. */
    healthy: z.nullable(z.boolean()),
  }),
)
export type RollbackFacts = z.infer<typeof rollbackSchema>

/** How a deployment ended, as written to the journal and the local report. */
export const deploymentEndSchema = z.lazy(() =>
  z.object({
    outcome: z.enum(['success', 'failed', 'rolled_back', 'interrupted', 'inconsistent']),
    changed: z.boolean(),
    completed_at: z.string(),
    error: z.nullable(z.object({ code: z.enum(ERROR_CODES), message: z.string(), step: z.nullable(z.string()) })),
    rollback: z.nullable(rollbackSchema),
  }),
)
export type DeploymentEnd = z.infer<typeof deploymentEndSchema>
