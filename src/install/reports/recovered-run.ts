import type { Outcome } from '../../core/outcome.ts'
import { nameRun } from '../transaction/run-name.ts'
import type { LocalReport } from './local-report.ts'

/** Describes in one sentence how an interrupted deployment ended, and, if known, which version the host runs now. */
export function describeRecovered(report: LocalReport): string {
  return `The interrupted ${nameRun(report)} was recovered: ${describeEnd(report)}.`
}

/** Describes in a clause how a deployment ended. */
export function describeEnd({ outcome, running_version: running }: LocalReport): string {
  return ENDS[outcome](running)
}

const ENDS: Record<Outcome, (running: string | null) => string> = {
  success: running => `it had been completed, and ${runs(running)}`,
  failed: running => `it had changed no file, and ${runs(running, ' still')}`,
  rolled_back: running => `it was rolled back${running === null ? `, and ${runs(running)}` : ` to ${running}`}`,
  interrupted: () => 'how it ended is not known, so check this host',
  inconsistent: () => 'not all files could be restored, so check this host',
}

function runs(version: string | null, still = ''): string {
  return version === null ? 'no version is known to run' : `${version}${still} runs`
}
