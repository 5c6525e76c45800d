import { SourceError } from '../../core/document/source-problem.ts'
import type { DeployError, ErrorCode } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { alert, cell, cellOf, code, words } from '../../core/markdown.ts'
import { countInWords } from '../../core/quantities.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import { restoredUnhealthy } from '../../install/reports/restored-health.ts'
import { rollbackProblems, withoutStep } from '../../install/reports/rollback-problems.ts'
import { mayHaveRunUnlisted, provisionSteps } from './acting-steps.ts'
import { isUncertainBefore } from './ending.ts'
import { nextStep } from './next-steps.ts'
import { listProblems } from './problem-list.ts'

const MAX_PROBLEMS = 20
const MAX_PROBLEM_CHARS = 500
const MAX_ID_CHARS = 130
const LINE_BREAK = '\\\n'

/** Returns a block for the top of the summary if a version or service is unhealthy after a rollback. */
export function alarm(report: LocalReport): string[] {
  const sentence = restoredUnhealthy(report)
  return sentence === undefined ? [] : [alert('CAUTION', [`**${cell(sentence)}**`])]
}

/** Says why the run failed, what to do next, and which version is running now. */
export function failureBlocks(report: LocalReport, error: DeployError | undefined): string[] {
  const cause = report.error ?? (error && { code: error.code, message: error.message, step: null })
  if (cause === undefined) return report.outcome === 'success' ? [] : [`**Now:** ${now(report)}`]
  const why = `${stepOf(report, cause.step)}${cell(withoutStep(cause))}`
  return causeBlocks({ code: cause.code, why, next: nextOf(report, cause.code, error), error }, [
    `**Now:** ${now(report)}`,
  ])
}

/** Says why a run that deploys nothing failed, and what to do next. */
export function readingFailure(error: DeployError | undefined): string[] {
  if (error === undefined) return []
  return causeBlocks({ code: error.code, why: cell(error.message), next: nextStep(error.code, error), error }, [])
}

/** The advice about the host comes before the advice about the cause. */
function nextOf(report: LocalReport, cause: ErrorCode, error: DeployError | undefined): string {
  const { outcome, rollback, host_id: host } = report
  if (outcome === 'inconsistent' && cause !== 'inconsistent' && rollback?.restored === true) return AFTER_DAMAGE
  if (outcome === 'inconsistent') return nextStep(cause === 'inconsistent' ? cause : 'rollback_failed', undefined)
  const left = [
    ...(rollback?.healthy === false ? [`Repair ${host} first: no healthy version is running there.`] : []),
    ...(rollbackProblems(report).length > 0 && rollback?.healthy !== false ? ['Check the problems listed below.'] : []),
    ...toCheck(report),
  ]
  const calm = left.length === 0 && ENDED_EARLY.has(cause) ? ['Nothing to repair.'] : left
  const publisher =
    cause === 'invalid_plan' && report.contract === 'project'
      ? ['If the plan came with the project, the publisher must fix it.']
      : []
  return [...calm, nextStep(cause, error), ...publisher].join(' ')
}

/**
 * The rollback is complete, so no run repeats it, but the restored files are damaged or could not be compared with
 * their record.
 */
const AFTER_DAMAGE = 'Follow docs/operating.md, "The host is inconsistent": install the old version again.'

/** The advice for these codes does not mention the state in which the run leaves the host. */
const ENDED_EARLY: ReadonlySet<ErrorCode> = new Set(['cancelled', 'interrupted'])

/** No rollback undoes the work of a provision step, so the operator must check it. */
function toCheck(report: LocalReport): string[] {
  const ids = provisionSteps(report).map(({ id }) => `\`${cleanForeignText(id, MAX_ID_CHARS).replaceAll('`', '')}\``)
  if (ids.length > 0) return [`Check what ${ids.slice(0, MAX_PROBLEMS).join(', ')} did.`]
  return mayHaveRunUnlisted(report) ? ['If the plan has a `provision` step, check whether it ran.'] : []
}

interface Cause {
  readonly code: ErrorCode
  /** In Markdown. */
  readonly why: string
  readonly next: string
  readonly error: DeployError | undefined
}

/** Lists several problems instead of a sentence that names only the first one. */
function causeBlocks({ code: name, why, next: advice, error }: Cause, more: readonly string[]): string[] {
  const problems = listProblems(error)
  const next = `**Next:** ${words(advice)}`
  if (problems.length === 0) return [[`**Why:** ${why} (${code(name)})`, next, ...more].join(LINE_BREAK)]
  const count = error instanceof SourceError ? error.problems.length : problems.length
  return [`**Why:** ${countInWords(count, 'problem')} (${code(name)})`, ...problems, [next, ...more].join(LINE_BREAK)]
}

function stepOf({ steps }: LocalReport, id: string | null): string {
  const action = steps.find(step => step.id === id)?.action
  if (id === null) return ''
  return `step ${code(id)}${action === undefined ? '' : ` (${cell(action)})`}: `
}

function now(report: LocalReport): string {
  const { outcome, running_version: version, rollback } = report
  if (outcome === 'success') return `${cell(version ?? 'nothing')} is installed.`
  if (isUncertainBefore(report)) return 'not certain until this host is repaired; this run installed nothing.'
  if (outcome === 'inconsistent') return withProblems('not certain; perhaps neither version is complete.', report)
  if (outcome === 'interrupted') return 'not known until the next run has recovered this host.'
  if (report.error?.code === 'locked')
    return 'not known; another deployment on this host is in progress or was interrupted.'
  if (rollback === null) return version === null ? unexamined(report) : `${cell(version)}, as before.`
  const none = report.unrecorded ? 'the files that were there before are back' : 'nothing is installed, as before'
  const running = version === null ? none : cell(version)
  return withProblems(`${running}${filesNow(report)}${servicesNow(report)}.`, report)
}

/** A run that has left `pending` has examined what is installed: if its report names no version, none was installed. */
function unexamined({ states, error, previous_version: before, unrecorded }: LocalReport): string {
  const hasBegun = states.some(({ state }) => state !== 'pending')
  if (hasBegun && before === null && unrecorded !== true) return 'nothing is installed, as before.'
  return error !== null && NOT_EXAMINED.has(error.code)
    ? 'not examined; nothing was changed.'
    : 'as before: nothing was changed.'
}

/** Refusals that happen before the host is read. */
const NOT_EXAMINED: ReadonlySet<ErrorCode> = new Set([
  'missing_input',
  'invalid_input',
  'unsafe_host',
  'host_not_writable',
])

function filesNow({ rollback, running_version: version }: LocalReport): string {
  if (rollback === null || version === null) return ''
  if (!rollback.restored) return ', but not every file change could be undone'
  if (rollback.verified === true) return ', all files as they were installed'
  return rollback.verified === false ? ', but not all files are as before' : ', its files restored'
}

function servicesNow({ rollback }: LocalReport): string {
  if (rollback === null || rollback.healthy === null) return ''
  return rollback.healthy ? ', healthy according to the checks of this plan' : ', **not healthy**'
}

/** Adds the problems of a rollback, except for an unhealthy version, whose problems the alarm already names. */
function withProblems(sentence: string, report: LocalReport): string {
  if (report.rollback?.healthy === false) return sentence
  const problems = rollbackProblems(report)
  const more = problems.length - MAX_PROBLEMS
  const lines = problems.slice(0, MAX_PROBLEMS).map(found => `- ${cellOf(found, MAX_PROBLEM_CHARS)}`)
  if (lines.length === 0) return sentence
  return [sentence, '', ...lines, ...(more > 0 ? [`- and ${more} more, which the local report lists`] : [])].join('\n')
}
