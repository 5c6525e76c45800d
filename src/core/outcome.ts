/** How a run ended. `interrupted` and `inconsistent` appear only in outputs and local files, never on the wire. */
export type Outcome = 'success' | 'failed' | 'rolled_back' | 'interrupted' | 'inconsistent'

/** How a hub is told that a run ended (contract 3, "Stated outcomes"). */
export type ReportStatus = 'success' | 'failed' | 'rolled_back'

/** The wire's word for an outcome: whatever is neither new nor old for certain counts as failed. */
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
