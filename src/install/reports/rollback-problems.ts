import { asSentence } from '../../core/sentence.ts'
import type { LocalReport } from './local-report.ts'

/**
 * Describes the problems of a rollback, one sentence each, for a reader who has just read the cause. If a restart fails
 * for the old version as it did for the new one, does not repeat that sentence. An unhealthy old version always gets
 * its own sentence.
 */
export function rollbackProblems({ rollback, error }: Pick<LocalReport, 'rollback' | 'error'>): string[] {
  const cause = error === null || error.code === 'unhealthy' ? undefined : withoutStep(error)
  return (rollback?.problems ?? []).map(problem =>
    problem === cause ? 'The same happened again.' : asSentence(problem),
  )
}

/** Returns the message without the id of the failed step. */
export function withoutStep({ message, step }: NonNullable<LocalReport['error']>): string {
  return step !== null && message.startsWith(`${step}: `) ? message.slice(step.length + 2) : message
}
