import { toDeployError } from '../../core/errors.ts'
import { isSystemError, toHostError } from '../files/system-errors.ts'
import { requireSafeHost } from '../host/ownership/ownership.ts'
import { UntouchableHostError } from '../host/ownership/untouchable-host.ts'
import { buildLocalReport, notSent, redactReport } from '../reports/local-report.ts'
import { readRunningVersion } from '../reports/running-version.ts'
import { buildEnd } from '../transaction/end.ts'
import type { EndedDeployment, RunningDeployment } from './deployment.ts'
import type { DryRunResult } from './dry-run/dry-run-result.ts'
import { failedEnd } from './run/ending.ts'

type Unreported = RunningDeployment<'failed'>

/** A run that only reads the host. */
export interface UnreportedRun {
  /** With an article, such as `a dry run`. */
  readonly name: string
  /** Completes a message about a system error: `Failed while examining /srv/app`. */
  readonly doing: string
  /** Resolves to the changes that a real run would make; undefined for a run that only checks. */
  run(): Promise<DryRunResult | undefined>
  /** Enters the state `failed`. */
  fail(): Promise<void>
}

/**
 * Runs work that only reads the host. Writes nothing below the project root, neither a lock nor a report, and reports
 * nothing to a hub. Never throws for a failure of the run: the result contains the error.
 */
export async function runUnreported(
  deployment: Unreported,
  { name, doing, run, fail }: UnreportedRun,
): Promise<EndedDeployment> {
  try {
    for (const accepted of requireSafeHost(deployment.host)) deployment.tools.log.warning(accepted)
    deployment.noteRunning()
    const dryRun = await run()
    return { ...conclude(deployment, name), dryRun }
  } catch (error) {
    deployment.tools.log.did('failed')
    if (deployment.state !== 'pending') await fail()
    return conclude(deployment, name, { thrown: causeOf(deployment, error, doing) })
  }
}

function causeOf({ tools }: Unreported, thrown: unknown, doing: string): unknown {
  if (tools.signal.aborted) return tools.signal.reason
  return isSystemError(thrown) ? toHostError(thrown, doing) : thrown
}

function conclude(deployment: Unreported, name: string, failure?: { thrown: unknown }): EndedDeployment {
  const { record, tools, layout } = deployment
  const error = failure && toDeployError(failure.thrown)
  const reported = notSent(`${name} reports nothing`)
  const end = error === undefined ? buildEnd(tools.now(), { outcome: 'success' }) : failedEnd(deployment, error)
  const isUnknown = error instanceof UntouchableHostError || end.outcome === 'inconsistent'
  const running_version = isUnknown ? null : readRunningVersion(layout, record.facts)
  const report = buildLocalReport(record, end, { reported, running_version })
  return {
    report: redactReport(report, tools.secrets),
    reportPath: undefined,
    plannedSteps: record.plannedSteps,
    error,
  }
}
