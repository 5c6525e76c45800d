import type { DeployError } from '../../core/errors.ts'
import type { DryRunResult } from '../../install/deployment/dry-run/dry-run-result.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import type { PlannedStep } from '../../install/transaction/record.ts'

/** The facts about a run that has ended. */
export interface RunFacts {
  readonly report: LocalReport
  /** The failure, as it was thrown. */
  readonly error?: DeployError | undefined
  readonly plannedSteps: readonly PlannedStep[]
  /** Set after a dry run. */
  readonly dryRun?: DryRunResult | undefined
}

/** The ending of a run in one line: a mark, and a sentence that is clear without the mark and has no final period. */
export interface Ending {
  readonly mark: string
  readonly sentence: string
}

/** The name of the deployed plugin, service or project in a sentence. */
export function nameOf({ slug, id }: LocalReport): string {
  return slug ?? id ?? 'This deployment'
}

/** True if a run ended without a change of its own, on a host that an earlier run has left in an uncertain state. */
export function isUncertainBefore({ outcome, rollback }: LocalReport): boolean {
  return outcome === 'inconsistent' && rollback === null
}
