import type { ErrorCode } from '../../../core/errors.ts'
import type { LocalReport } from '../../../install/reports/local-report.ts'
import { actingSteps } from '../acting-steps.ts'
import { type Ending, isUncertainBefore, nameOf, type RunFacts } from '../ending.ts'
import { describeSuccess } from './success-sentence.ts'

/** Describes the ending of a deployment or rollback, for the log's last line and the summary's first. */
export function describeEnding(run: RunFacts): Ending {
  const { report } = run
  switch (report.outcome) {
    case 'success':
      return describeSuccess(run)
    case 'failed':
      return describeFailure(report)
    case 'rolled_back':
      return { mark: '↩️', sentence: `${wanted(report)} was rolled back on ${report.host_id}; ${restoredNow(report)}` }
    case 'interrupted':
      return { mark: '⚠️', sentence: `The deployment of ${wanted(report)} on ${report.host_id} was interrupted` }
    case 'inconsistent':
      return { mark: '🛑', sentence: describeUncertain(report) }
  }
}

function describeUncertain(report: LocalReport): string {
  const { host_id: host, error } = report
  const verb = (error && VERBS[error.code]) ?? 'was refused'
  if (isUncertainBefore(report))
    return `${subjectOf(report)} ${verb} on ${host}, whose state is uncertain: repair the host`
  return `${host} may have neither the old nor the new version of ${nameOf(report)} intact: repair the host`
}

function describeFailure(report: LocalReport): Ending {
  const { host_id: host, error } = report
  const subject = subjectOf(report)
  const verb = error && VERBS[error.code]
  if (actingSteps(report).length > 0)
    return { mark: '❌', sentence: `${subject} ${verb ?? 'failed'} on ${host}; no file was changed` }
  if (error?.code === 'unhealthy')
    return { mark: '❌', sentence: `${wanted(report)} on ${host} is unhealthy; nothing was changed` }
  const otherwise = error === null ? 'was not installed' : 'was refused'
  return { mark: '❌', sentence: `${subject} ${verb ?? otherwise} on ${host}; ${installedNow(report)}` }
}

function subjectOf(report: LocalReport): string {
  const { rollback_of: replaced, slug, id } = report
  if (replaced === undefined) return wanted(report)
  const name = slug ?? id
  return name ? `The rollback of ${name}` : 'This rollback'
}

/** What happened to an artifact that no check has refused, by error code. */
const VERBS: Partial<Record<ErrorCode, string>> = {
  network: 'could not be fetched',
  timeout: 'could not be fetched',
  bad_response: 'could not be fetched',
  artifact_unavailable: 'could not be fetched',
  not_found: 'was not found on the hub and was not installed',
  no_published_version: 'has no known version and was not installed',
  not_installed: 'was not found intact',
  cancelled: 'was cancelled',
  interrupted: 'was interrupted',
  locked: 'gave way to another deployment',
  disk_full: 'did not fit',
  internal_error: 'failed',
  step_failed: 'failed',
  step_timed_out: 'failed',
}

function restoredNow({ previous_version: before, rollback, unrecorded }: LocalReport): string {
  if (unrecorded) return 'the files that were there before are back'
  if (before === null) return 'nothing is installed, as before'
  if (rollback?.healthy === false) return `${before} is installed again, but not healthy`
  return `${before} is ${rollback?.healthy === true ? 'running' : 'installed'} again`
}

/** The version on the host now, if the report names it. */
function installedNow({ running_version: version, error }: LocalReport): string {
  if (error?.code === 'locked') return 'this run changed nothing'
  return version === null ? 'nothing was changed' : `${version} is still installed`
}

/** The name with the version that was to be installed. */
function wanted(report: LocalReport): string {
  const { version, requested_version: asked } = report
  if (version === null && asked === 'latest') return `${nameOf(report)} (latest)`
  return `${nameOf(report)} ${version ?? asked ?? ''}`.trim()
}
