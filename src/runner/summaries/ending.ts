import type { DeployError } from '../../core/errors.ts'
import type { DryRunResult } from '../../install/deployment/dry-run/dry-run-result.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import type { PlannedStep } from '../../install/transaction/record.ts'

/** What is known of a run that has ended. */
export interface RunFacts {
  readonly report: LocalReport
  /** What failed, as it was thrown. */
  readonly error?: DeployError | undefined
  readonly plannedSteps: readonly PlannedStep[]
  /** Of a dry run. */
  readonly dryRun?: DryRunResult | undefined
}

/** How a run ended, in one line: a mark, and a sentence without its full stop that needs no mark. */
export interface Ending {
  readonly mark: string
  readonly sentence: string
}

/** What a sentence about a run calls what was deployed. */
export function nameOf({ slug, id }: LocalReport): string {
  return slug ?? id ?? 'This deployment'
}
