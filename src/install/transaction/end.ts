import { z } from 'zod/mini'
import { ERROR_CODES } from '../../core/errors.ts'
import { timeSchema } from '../host/record-fields.ts'

const rollbackSchema = z.lazy(() =>
  z.object({
    /** Whether every change was undone. */
    restored: z.boolean(),
    /** The problems that remain, one sentence each. */
    problems: z.array(z.string()),
    /** Whether the restored trees match their records; null if that is not known. */
    verified: z.nullable(z.boolean()),
    /**
     * Whether the old version is healthy again; null if it was not checked, for example because it was not running before.
     */
    healthy: z.nullable(z.boolean()),
  }),
)
export type RollbackFacts = z.infer<typeof rollbackSchema>

/** The end of a deployment, as the journal and the local report contain it. */
export const deploymentEndSchema = z.lazy(() =>
  z.object({
    outcome: z.enum(['success', 'failed', 'rolled_back', 'interrupted', 'inconsistent']),
    changed: z.boolean(),
    completed_at: timeSchema,
    error: z.nullable(z.object({ code: z.enum(ERROR_CODES), message: z.string(), step: z.nullable(z.string()) })),
    rollback: z.nullable(rollbackSchema),
  }),
)
export type DeploymentEnd = z.infer<typeof deploymentEndSchema>

/** Builds an end at the given time, without a change, an error or a rollback unless `known` contains one. */
export function buildEnd(at: Date, known: Pick<DeploymentEnd, 'outcome'> & Partial<DeploymentEnd>): DeploymentEnd {
  return { changed: false, error: null, rollback: null, completed_at: at.toISOString(), ...known }
}
