/** The outcome of a run. `interrupted` and `inconsistent` never appear on the wire. */
export type Outcome = 'success' | 'failed' | 'rolled_back' | 'interrupted' | 'inconsistent'

/** The outcome as a report to the hub states it (contract 3, "Stated outcomes"). */
export type ReportStatus = 'success' | 'failed' | 'rolled_back'

/** Returns the outcome for a report to the hub. `interrupted` and `inconsistent` become `failed`. */
export function reportStatusOf(outcome: Outcome): ReportStatus {
  switch (outcome) {
    case 'success':
      return 'success'
    case 'rolled_back':
      return 'rolled_back'
    case 'failed':
    case 'interrupted':
    case 'inconsistent':
      return 'failed'
  }
}
