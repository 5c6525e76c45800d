import type { DeployError } from '../../core/errors.ts'
import { cell, code, table } from '../../core/markdown.ts'
import type { Outcome } from '../../core/outcome.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import { restoredUnhealthy } from '../../install/reports/restored-health.ts'
import { rollbackProblems } from '../../install/reports/rollback-problems.ts'
import { listDrift, pathOfEntry } from '../../install/transaction/drift-names.ts'
import type { PlannedStep } from '../../install/transaction/record.ts'
import { listProblems } from './problem-list.ts'
import { describeMove } from './version-move.ts'

export interface SummaryFacts {
  report: LocalReport
  reportPath?: string | undefined
  plannedSteps: readonly PlannedStep[]
  /** What failed, as it was thrown. */
  error?: DeployError | undefined
  /** What the run has recovered before, in one sentence. */
  recovered?: string | undefined
}

const MAX_LISTED_SNAPSHOTS = 20

/** The job summary as Markdown: outcome first, then what happened, what failed and what to do next. */
export function buildDeploySummary(summary: SummaryFacts): string {
  const { report, reportPath, plannedSteps, error, recovered } = summary
  const blocks = [
    `### ${headline(summary)}`,
    ...alarm(report),
    ...(recovered === undefined ? [] : [cell(recovered)]),
    table(['', ''], facts(report, reportPath)),
    ...failure(report, error),
    ...listProblems(error),
    ...rollback(report),
    ...provisioned(report),
    ...drift(report),
    ...skipped(summary),
    table(['State', 'Entered', 'Duration'], states(report)),
    ...(report.steps.length > 0 ? [table(['Step', 'Action', 'Result', 'Duration'], steps(report))] : []),
    ...(plannedSteps.length > 0
      ? [`Plan: ${plannedSteps.map(step => `${code(step.id)} ${step.action}`).join(' → ')}`]
      : []),
  ]
  return `${blocks.join('\n\n')}\n`
}

const WORDS: Record<Outcome, string> = {
  success: '✅ Deployed',
  failed: '❌ Failed, nothing was changed',
  rolled_back: '↩️ Rolled back, the old version is installed again',
  interrupted: '⚠️ Interrupted',
  inconsistent: '🛑 Inconsistent, this host needs attention',
}

/** Of a rollback that an operator has asked for. */
const ROLLBACK_WORDS: Partial<Record<Outcome, string>> = {
  success: '⏪ Restored',
  rolled_back: '↩️ Not restored, the version that was to be replaced is installed again',
}

function headline({ report, plannedSteps }: SummaryFacts): string {
  const slug = cell(report.slug ?? 'unknown')
  return `${wordFor(report, plannedSteps)}: ${slug} ${move(report)}, on ${cell(report.host_id)}`
}

/** A run that was refused early has not read what is installed, and says nothing about it. */
function move(report: LocalReport): string {
  const before = report.previous_version
  const after = cell(report.version ?? report.requested_version ?? 'unknown')
  if (report.outcome !== 'success') return `${after}${before === null ? '' : ` (was ${cell(before)})`}`
  return cell(describeMove(report))
}

function wordFor(report: LocalReport, plannedSteps: readonly PlannedStep[]): string {
  const { outcome, changed, state } = report
  const acted = findActing(report)
  if (outcome === 'failed' && acted.length > 0) return '❌ Failed, no file was changed'
  const words = report.rollback_of === undefined ? WORDS : { ...WORDS, ...ROLLBACK_WORDS }
  if (outcome !== 'success' || changed) return words[outcome]
  if (isCheck(report)) return '🩺 Healthy, nothing was changed'
  if (state !== 'succeeded') return '🔎 Dry run, nothing was done'
  if (acted.length === 0) return '✅ Nothing to change'
  const starters = plannedSteps.flatMap(({ id, isIdle }) => (isIdle && acted.includes(id) ? [id] : []))
  if (starters.length === 0) return '✅ No file changed, the steps were run again'
  return `✅ No file changed, what did not run was started by ${starters.map(code).join(', ')}`
}

/** Whether a run has checked what was installed, and nothing else. */
function isCheck({ states }: LocalReport): boolean {
  const entered = states.map(({ state }) => state)
  return entered.includes('healthchecking') && !entered.includes('installing')
}

/** What may change more of a host than files. */
const ACTING: ReadonlySet<string> = new Set(['provision', 'stop', 'start', 'restart', 'notify'])

function findActing({ steps }: LocalReport): string[] {
  return steps.flatMap(({ id, action, status }) => (ACTING.has(action) && DONE.has(status) ? [id] : []))
}

/** A step that failed may have done its work, or a part of it. */
const DONE: ReadonlySet<string> = new Set(['done', 'warned', 'failed'])

function facts(report: LocalReport, reportPath: string | undefined): string[][] {
  const { accepted, error } = report.reported
  return [
    ['Artifact', artifact(report)],
    ...parts(report),
    ['Deployment', code(report.deployment_id)],
    ['Local report', reportPath === undefined ? 'none' : code(reportPath)],
    ['Hub', accepted ? 'has the report' : `does not have the report (${cell(error ?? 'not sent')})`],
  ]
}

/** A rollback knows its digest alone. */
function artifact({ artifact_sha256: sha256, artifact_size: size, modified }: LocalReport): string {
  if (modified) return 'none: the restored files had been changed on this host (a modified snapshot)'
  if (sha256 === null) return 'not fetched'
  return `sha256 ${code(sha256)}${size === null ? '' : `, ${size} bytes`}`
}

/** The plugins of a project, and the key that signed it. */
function parts({ plugins, signer_public_key: signer }: LocalReport): string[][] {
  const versions = plugins?.map(({ id, version }) => `${cell(id)} ${cell(version)}`).join(', ')
  return [
    ...(signer === undefined ? [] : [['Signed by', code(signer)]]),
    ...(versions === undefined ? [] : [['Plugins', versions]]),
  ]
}

/** A run that succeeded may still have an error: a hub that refused the report. */
function failure(report: LocalReport, error: DeployError | undefined): string[] {
  const cause = report.error ?? (error && { code: error.code, message: error.message, step: null })
  if (cause === undefined) return []
  return [`**${code(cause.code)}** ${cell(cause.message)}`]
}

/** What was not as it was installed before the deployment. */
function drift({ drift: entries = [] }: LocalReport): string[] {
  const { names, more } = listDrift(entries)
  const unknown = entries.filter(({ compared }) => compared === false).map(entry => code(pathOfEntry(entry)))
  const missing = unknown.length === 0 ? [] : [`⚠️ Not compared with what was installed: ${unknown.join(', ')}.`]
  if (names.length === 0) return missing
  const listed = names.map(name => code(name)).join(', ')
  const found = `⚠️ Files on this host were not as they were installed: ${listed}${more > 0 ? ` and ${more} more` : ''}.`
  const snapshots = entries.flatMap(({ snapshot }) => (snapshot === undefined ? [] : [code(snapshot)]))
  if (snapshots.length === 0) return [found, ...missing]
  const others = snapshots.length - MAX_LISTED_SNAPSHOTS
  const kept = snapshots.slice(0, MAX_LISTED_SNAPSHOTS).join(', ')
  return [`${found} What was replaced is kept in ${kept}${others > 0 ? ` and ${others} more` : ''}.`, ...missing]
}

function rollback(report: LocalReport): string[] {
  if (report.rollback === null) return []
  const { restored, verified, healthy } = report.rollback
  const back = verified === false ? 'the old files are back, but not all are as before' : 'the files are as before'
  const result = restored ? back : 'not every change of files could be undone'
  const check = verified === true ? ', and match their record' : ''
  const health =
    healthy === true ? ' The old version passes the health checks of this plan; no other service was checked.' : ''
  // The alarm names them.
  const problems = healthy === false ? [] : rollbackProblems(report)
  return [[`Rollback: ${result}${check}.${health}`, ...problems.map(found => `- ${cell(found)}`)].join('\n')]
}

/** What no rollback undoes, whatever it says of the files. */
function provisioned(report: LocalReport): string[] {
  const ran = report.steps.filter(({ action, status }) => action === 'provision' && DONE.has(status))
  if (report.outcome === 'success' || ran.length === 0) return []
  const names = ran.map(({ id, status }) => `${code(id)}${status === 'failed' ? ' (failed)' : ''}`)
  return [`What these provision steps have done was not undone: ${names.join(', ')}.`]
}

/** Nothing healthy runs: nobody must have to look for that. */
function alarm(report: LocalReport): string[] {
  const sentence = restoredUnhealthy(report)
  return sentence === undefined ? [] : [`> [!CAUTION]\n> **${cell(sentence)}**`]
}

/** The steps for which nothing changes, but for those that had a service to start, or were not reached. */
function skipped({ report, plannedSteps }: SummaryFacts): string[] {
  const others = new Set(report.steps.flatMap(({ id, status }) => (status === 'skipped' ? [] : [id])))
  const idle = plannedSteps.filter(step => step.isIdle && step.action !== 'start' && !others.has(step.id))
  if (idle.length === 0) return []
  const names = idle.map(({ id, action }) => `${code(id)} (${action})`).join(', ')
  const verb = report.steps.length > 0 ? 'were skipped' : 'would be skipped'
  return [
    `Nothing changes for these steps, which ${verb}: ${names}.${report.rollback_of === undefined ? ` With ${code('redeploy: true')}, they run.` : ''}`,
  ]
}

function states(report: LocalReport): string[][] {
  return report.states.map(({ state, at }, index) => {
    const next = report.states[index + 1]?.at ?? report.completed_at
    return [cell(state), at, `${Math.max(0, Date.parse(next) - Date.parse(at))} ms`]
  })
}

function steps(report: LocalReport): string[][] {
  return report.steps.map(step => [code(step.id), step.action, result(step), `${step.duration_ms} ms`])
}

/** The cause of a failed step is above; that of a warning is nowhere else. */
function result({ status, error }: LocalReport['steps'][number]): string {
  return status === 'warned' && error !== null ? `warned: ${cell(error)}` : status
}
