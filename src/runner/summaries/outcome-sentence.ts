import type { ErrorCode } from '../../core/errors.ts'
import { listNames } from '../../core/foreign-text.ts'
import { shortDigest } from '../../core/quantities.ts'
import type { Rehearsal } from '../../install/deployment/rehearsal.ts'
import { addedInWords, isOnlyAdded } from '../../install/host/trees/drift-check.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import type { PlannedStep } from '../../install/transaction/record.ts'
import { actingSteps } from './acting-steps.ts'
import { checkedParts } from './checked-parts.ts'

/** What is known of a run that has ended. */
export interface RunFacts {
  readonly report: LocalReport
  readonly plannedSteps: readonly PlannedStep[]
  /** Of a dry run. */
  readonly rehearsal?: Rehearsal | undefined
}

/** How a run ended, in one line: a mark, and a sentence without its full stop that needs no mark. */
export interface Ending {
  readonly mark: string
  readonly sentence: string
}

/** The ending of a deployment or rollback, as the log's last line and the summary's first one say it. */
export function describeEnding(run: RunFacts): Ending {
  const { report } = run
  switch (report.outcome) {
    case 'success':
      return report.changed ? describeChange(report) : describeUnchanged(run)
    case 'failed':
      return describeFailure(report)
    case 'rolled_back':
      return { mark: '↩️', sentence: `${wanted(report)} was rolled back on ${report.host_id}; ${whatIsBack(report)}` }
    case 'interrupted':
      return { mark: '⚠️', sentence: `The deployment of ${wanted(report)} on ${report.host_id} was interrupted` }
    case 'inconsistent':
      return {
        mark: '🛑',
        sentence: `${report.host_id} may have neither the old nor the new version of ${nameOf(report)} whole: repair it by hand`,
      }
  }
}

/** What runs on the host now, as far as the report says. */
export function installedNow({ running_version: version, error }: LocalReport): string {
  if (error?.code === 'locked') return 'this run changed nothing'
  return version === null ? 'nothing was changed' : `${version} is still installed`
}

function nameOf({ slug, id }: LocalReport): string {
  return slug ?? id ?? 'This deployment'
}

/** The name with the version that was to be installed. */
function wanted(report: LocalReport): string {
  const { version, requested_version: asked } = report
  if (version === null && asked === 'latest') return `${nameOf(report)} (latest)`
  return `${nameOf(report)} ${version ?? asked ?? ''}`.trim()
}

function describeChange(report: LocalReport): Ending {
  const { previous_version: before, host_id: host, rollback_of: replaced } = report
  const after = report.version ?? report.requested_version ?? 'unknown'
  const on = `on ${host}`
  if (replaced !== undefined && before !== null && before !== after)
    return { mark: '⏪', sentence: `${nameOf(report)} ${before} → ${after} ${on}, restored from a snapshot` }
  if (report.unrecorded)
    return {
      mark: '✅',
      sentence: `First install of ${nameOf(report)} ${after} ${on}; it replaced one that this action had not installed`,
    }
  if (before === null) return { mark: '✅', sentence: `First install of ${nameOf(report)} ${after} ${on}` }
  if (before !== after) return { mark: '✅', sentence: `${nameOf(report)} ${before} → ${after} ${on}` }
  const { drift = [] } = report
  if (drift.length === 0 && hasOtherParts(report))
    return { mark: '✅', sentence: `${nameOf(report)} ${describeParts(after, report)} ${on}` }
  if (drift.length > 0) return { mark: '✅', sentence: `${nameOf(report)} ${after} was repaired ${on}` }
  return { mark: '✅', sentence: `${nameOf(report)} ${after} was already ${on}${describeSame(report)}` }
}

/** What a run has changed of the version that was installed. */
function describeSame({ steps, artifact_sha256: now, previous_sha256: before }: LocalReport): string {
  const isDone = (prefix: string): boolean =>
    steps.some(({ action, status }) => action.startsWith(prefix) && status === 'done')
  if (!isDone('install_')) return isDone('write_env') ? '; its settings were written' : ', and was changed'
  if (now === null || before === undefined || now === before) return ', and was installed again'
  return `, and was installed again with other bytes (sha256 ${shortDigest(before)} → ${shortDigest(now)})`
}

function describeUnchanged({ report, plannedSteps, rehearsal }: RunFacts): Ending {
  const { host_id: host, previous_version: before, state } = report
  const after = report.version ?? report.requested_version ?? 'unknown'
  const there = `${nameOf(report)} ${after}`
  if (isCheck(report)) return describeCheck(report, `${there} on ${host}`)
  if (state !== 'succeeded') {
    const move =
      before === null
        ? `first install of ${there}`
        : before === after
          ? there
          : `${nameOf(report)} ${before} → ${after}`
    return { mark: '🔎', sentence: `Dry run: ${move} on ${host} would ${rehearsal?.inWords() ?? 'change nothing'}` }
  }
  const { drift = [] } = report
  const acted = actingSteps(report)
  const starters = plannedSteps.flatMap(({ id, isIdle }) => (isIdle && acted.includes(id) ? [id] : []))
  if (starters.length > 0)
    return { mark: '✅', sentence: `${there} is already on ${host}; ${listNames(starters)} started what did not run` }
  if (acted.length > 0) return { mark: '✅', sentence: `${there} is already on ${host}; its steps were run again` }
  if (drift.length === 0) return { mark: '✅', sentence: `${there} is already on ${host}, unmodified` }
  // Where a report omits paths, added ones are the last that it lists.
  if (!drift.every(entry => isOnlyAdded(entry) && entry.added.length > 0))
    return { mark: '⚠️', sentence: `${there} is already on ${host}, but its files differ from what was installed` }
  const count = drift.reduce((sum, { added, omitted = 0 }) => sum + added.length + omitted, 0)
  return { mark: '✅', sentence: `${there} is already on ${host}; ${addedInWords(count)}` }
}

/** A check that had nothing to ask about health has compared files alone. */
function describeCheck(report: LocalReport, there: string): Ending {
  if (checkedParts(report).extent === 'none')
    return { mark: '⚠️', sentence: `${there} is installed and intact; no health check ran` }
  return { mark: '🩺', sentence: `${there} is healthy; nothing was changed` }
}

function describeFailure(report: LocalReport): Ending {
  const { host_id: host, error } = report
  const what = report.rollback_of === undefined ? wanted(report) : `The rollback of ${nameOf(report)}`
  const verb = error && VERBS[error.code]
  if (actingSteps(report).length > 0)
    return { mark: '❌', sentence: `${what} ${verb ?? 'failed'} on ${host}; no file was changed` }
  if (error?.code === 'unhealthy')
    return { mark: '❌', sentence: `${wanted(report)} on ${host} is unhealthy; nothing was changed` }
  const otherwise = error === null ? 'was not installed' : 'was refused'
  return { mark: '❌', sentence: `${what} ${verb ?? otherwise} on ${host}; ${installedNow(report)}` }
}

/** Of what nobody has refused. */
const VERBS: Partial<Record<ErrorCode, string>> = {
  network: 'could not be fetched',
  timeout: 'could not be fetched',
  bad_response: 'could not be fetched',
  artifact_unavailable: 'could not be fetched',
  not_found: 'was not found by the hub and was not installed',
  no_published_version: 'has no published version and was not installed',
  not_installed: 'was not found intact',
  cancelled: 'was cancelled',
  interrupted: 'was interrupted',
  locked: 'gave way to another deployment',
  disk_full: 'had no room',
  internal_error: 'failed',
  step_failed: 'failed',
  step_timed_out: 'failed',
}

function whatIsBack({ previous_version: before, rollback, unrecorded }: LocalReport): string {
  if (unrecorded) return 'what was there before is back'
  if (before === null) return 'nothing is installed, as before'
  if (rollback?.healthy === false) return `${before} is installed again, but not healthy`
  return `${before} is ${rollback?.healthy === true ? 'running' : 'installed'} again`
}

/** Whether a run has checked what was installed, and nothing else. */
function isCheck({ states }: LocalReport): boolean {
  const entered = states.map(({ state }) => state)
  return entered.includes('healthchecking') && !entered.includes('installing')
}

/** Within one version of a project, its sources may supply other parts, and a rollback may restore earlier ones. */
function hasOtherParts({ contract, sources, rollback_of: replaced }: LocalReport): boolean {
  return contract === 'project' && (sources !== undefined || replaced !== undefined)
}

function describeParts(version: string, { plugins = [], sources }: LocalReport): string {
  const isSourced = (id: string): boolean => sources?.some(({ part }) => part === `plugins/${id}`) ?? true
  const names = plugins.filter(({ id }) => isSourced(id)).map(plugin => `${plugin.id} ${plugin.version}`)
  return names.length === 0 ? `${version} has other parts now` : `${version} has ${listNames(names)} now`
}
