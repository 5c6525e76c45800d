import type { ErrorCode } from '../../core/errors.ts'
import { isMarkerAction } from '../../core/plan/step.ts'
import {
  alert,
  bytesInWords,
  cell,
  cellOf,
  code,
  countInWords,
  details,
  durationInWords,
  link,
  listFirst,
  table,
} from '../../core/text.ts'
import type { StepEntry } from '../../install/journal/facts.ts'
import { type DriftEntry, listDrift, pathOfEntry } from '../../install/journal/facts.ts'
import { type LocalReport, withoutStep } from '../../install/reports/local-report.ts'
import { type DryRunResult, type RunResult, sizesInWords } from '../../install/reports/result.ts'
import { describeDrift } from '../../install/steps/drift.ts'
import type { PlannedStep } from '../../install/transaction/record.ts'
import type { Note } from '../log.ts'
import { alarm, failureBlocks, MAX_ID_CHARS } from './failure.ts'
import {
  actingSteps,
  buildHeadline,
  type CheckedParts,
  checkedParts,
  hasMovedParts,
  mayHaveRunUnlisted,
  provisionSteps,
} from './outcome.ts'

export interface SummaryFacts extends RunResult {
  /** The recovery that the run made first, in one sentence. */
  readonly recovered?: string | undefined
  /** The notices and warnings in the log of the run. */
  readonly notes?: readonly Note[]
  /** The duration of each group of the log in milliseconds, by its title. */
  readonly took?: ReadonlyMap<string, number>
}

const MAX_LISTED = 20
const MAX_NAME_CHARS = 150
const MAX_HOLDER_CHARS = 400

/**
 * Builds the job summary as Markdown: the outcome, the cause of a failure and the next step for the reader, the
 * warnings and notices, the steps, and the details.
 */
export function buildDeploySummary(summary: SummaryFacts): string {
  const { report, error, recovered, notes = [], took, dryRun, plannedSteps } = summary
  const { mark, sentence } = buildHeadline(summary)
  const blocks = [
    `### ${mark} ${cell(sentence)}`,
    ...alarm(report),
    ...(recovered === undefined || notes.some(({ text }) => text === recovered)
      ? []
      : [alert('WARNING', [cell(recovered)])]),
    ...(report.outcome === 'success' && dryRun === undefined ? [inOneLine(summary)] : []),
    ...failureBlocks(report, error),
    ...warningBlocks(report, error?.code === 'report_refused' ? withoutRefusal(report, notes) : notes),
    ...skipped(summary),
    ...(dryRun === undefined ? [] : dryRunBlocks(dryRun, plannedSteps)),
    ...stepsTable(report),
    details('Details', [facts(summary).join(' · '), states(report, took)]),
  ]
  return `${blocks.join('\n\n')}\n`
}

/** Leaves out the warning about a refused report, because the summary shows the refusal as the cause of the failure. */
function withoutRefusal({ reported }: LocalReport, notes: readonly Note[]): readonly Note[] {
  const { error } = reported
  return error === null ? notes : notes.filter(({ text }) => !text.endsWith(error))
}

/** The line below a successful outcome: the duration, the health check and the hub's answer. */
function inOneLine({ report }: SummaryFacts): string {
  const { changed, duration_ms: ms, reported, removed } = report
  const checked = checkedParts(report)
  const took = durationInWords(ms)
  if (removed)
    return `Took ${took}. A removal is not reported: the fleet view of the hub keeps the last report of this host.`
  const isHealthy = changed && checked.extent === 'all'
  const done = changed
    ? `${hasMovedParts(report) ? 'Installed' : 'Done'}${isHealthy ? ' and healthy' : ''} after`
    : 'Took'
  const calm = !changed && actingSteps(report).length === 0 ? ' Nothing was restarted.' : ''
  return `${done} ${took}.${isHealthy ? '' : checkedInWords(checked, changed)}${calm}${reported.accepted ? ' The hub accepted the report.' : ''}`
}

function checkedInWords(checked: CheckedParts, changed: boolean): string {
  switch (checked.extent) {
    case 'none':
      return changed ? ' No health check ran.' : ''
    case 'some':
      return ` Health checked: ${cell(checked.inWords)}.`
    case 'all':
      return ' The health check passed.'
  }
}

/**
 * Lists the steps that were or would be skipped because nothing changes for them. Omits `start` steps, because they may
 * start a service. A `restart` may do so too: it is listed, and if no step has run, a sentence states this exception.
 */
function skipped({ report, plannedSteps }: SummaryFacts): string[] {
  const others = new Set(report.steps.flatMap(({ id, status }) => (status === 'skipped' ? [] : [id])))
  const idle = plannedSteps.filter(step => step.isIdle && step.action !== 'start' && !others.has(step.id))
  if (idle.length === 0) return []
  const names = idle.map(({ id, action }) => `${code(id, MAX_NAME_CHARS)} (${cellOf(action, MAX_NAME_CHARS)})`)
  const verb = report.steps.length > 0 ? 'were skipped' : 'would be skipped'
  const remedy = report.rollback_of === undefined ? ` ${code('redeploy: true')} runs every step.` : ''
  const mayStart = report.steps.length === 0 && idle.some(({ action }) => action === 'restart')
  const exception = mayStart ? ' A service that is not running would be started.' : ''
  return [
    `${listFirst(names, MAX_LISTED)} ${idle.length === 1 ? verb.replace('were', 'was') : verb}: nothing changes for ${idle.length === 1 ? 'it' : 'them'}.${exception}${remedy}`,
  ]
}

function facts(summary: SummaryFacts): string[] {
  const { report, reportPath } = summary
  return [
    artifact(report),
    ...parts(report),
    `deployment ${code(report.deployment_id)}`,
    ...(reportPath === undefined ? [] : [`local report ${code(reportPath)}`]),
    hubFact(report.reported),
    ...(report.run.url === null ? [] : [link('workflow run', report.run.url)]),
  ]
}

function hubFact({ accepted, attempts, error }: LocalReport['reported']): string {
  if (accepted) return 'the hub has the report'
  if (attempts > 0) return `the hub has not accepted the report (${cellOf(error ?? '', MAX_NAME_CHARS)})`
  return error === null || error === 'not sent' ? 'not reported to a hub' : cellOf(error, MAX_NAME_CHARS)
}

/** Describes the artifact. A rollback knows only its digest. */
function artifact(report: LocalReport): string {
  const { artifact_sha256: sha256, artifact_size: size, modified } = report
  if (modified) return 'no artifact: the restored files had been changed on this host (a modified snapshot)'
  if (sha256 === null) return 'no artifact was fetched'
  return `artifact sha256 ${code(sha256)}${size === null ? '' : ` (${bytesInWords(size)}, signature ${signatureOf(report)})`}`
}

/**
 * Judges by the states: only a run that passed the signature check enters the next state. In the state of that check,
 * the run then also compares the digest and the version, so an error in that state does not mean that the signature is
 * wrong.
 */
function signatureOf({ states, error, signature_valid: isValid, signer_public_key: signer }: LocalReport): string {
  if (isValid) return 'valid'
  const at = states.findIndex(({ state }) => state === 'verifying_signature')
  const next = at === -1 ? undefined : states[at + 1]
  if (next !== undefined && next.state !== 'failed') return 'valid'
  if (at === -1 || error === null) return 'not checked'
  if (INVALID.has(error.code)) return 'not valid'
  // A project's signer is recorded as soon as the signature has been verified.
  if (signer !== undefined) return 'valid'
  return SIGNED.has(error.code) ? 'valid' : 'not checked'
}

const INVALID: ReadonlySet<ErrorCode> = new Set(['missing_signature', 'invalid_signature_format', 'signature_mismatch'])

/** Refusals right after the signature was found valid; `locked` ends the wait for the host. */
const SIGNED: ReadonlySet<ErrorCode> = new Set([
  'locked',
  'digest_mismatch',
  'version_reused',
  'version_mismatch',
  'downgrade_refused',
])

/** The plugins of a project, and the key that signed it. */
function parts({ plugins, signer_public_key: signer }: LocalReport): string[] {
  const named =
    plugins?.map(({ id, version }) => `${cellOf(id, MAX_NAME_CHARS)} ${cellOf(version, MAX_NAME_CHARS)}`) ?? []
  return [
    ...(signer === undefined ? [] : [`signed by ${code(signer)}`]),
    ...(named.length === 0 ? [] : [`plugins ${listFirst(named, MAX_LISTED)}`]),
  ]
}

/**
 * The duration of each state; the last one ends with the run. A wait for another run, and the phases in `END_WORK`
 * between the last two states, are shown separately and count toward no state.
 */
function states(
  { states: entered, completed_at: end, waited }: LocalReport,
  took?: ReadonlyMap<string, number>,
): string {
  const last = entered.length - 1
  const timed = entered.flatMap(({ state, at }, index) => {
    const next = entered[index + 1]
    if (next === undefined && index > 0) return [cell(state)]
    const ms = Math.max(0, Date.parse(next?.at ?? end) - Date.parse(at))
    const ending = index === last - 1 ? END_WORK.map(title => ({ title, ms: took?.get(title) ?? 0 })) : []
    const wait = state === 'pending' && waited !== undefined ? [waited] : []
    const own = ending.reduce((left, work) => left - work.ms, ms - (wait[0]?.duration_ms ?? 0))
    return [
      `${cell(state)} ${durationInWords(Math.max(0, own))}`,
      ...wait.map(
        ({ duration_ms: spent, for: other }) =>
          `waited ${durationInWords(spent)} for another deployment (${cellOf(other, MAX_HOLDER_CHARS)})`,
      ),
      ...ending.filter(work => work.ms > 0).map(work => `${work.title} ${durationInWords(work.ms)}`),
    ]
  })
  return timed.join(' → ')
}

/** The phases at the end of a run, by their titles in the log. A commit that fails is rolled back. */
const END_WORK = ['committing', 'rolling back']

const MAX_ROWS = 100
const MAX_PATH_CHARS = 200
const MAX_PARTS = 20
const MAX_STEPS = 20

/** Lists the parts and files that a real run would change, and the steps that it would run. */
function dryRunBlocks(dryRun: DryRunResult, steps: readonly PlannedStep[]): string[] {
  const { changes, removals, count } = dryRun
  const rows = changes
    .slice(0, MAX_ROWS)
    .map(change => [change.how, code(change.path, MAX_PATH_CHARS), sizesInWords(change)])
  const more = count - rows.length
  return [
    'This was a dry run: nothing below project-root was written, and nothing was reported.',
    ...removals.slice(0, MAX_PARTS).map(sentence => cellOf(sentence, MAX_PATH_CHARS * 3)),
    ...(rows.length === 0 ? [] : [table(['', 'File', 'Size'], rows)]),
    ...(more > 0 ? [`And ${dryRun.countInWords(more, 'more file')}. A real run would ${dryRun.inDetail()}.`] : []),
    ...stepsLine(steps),
  ]
}

function stepsLine(steps: readonly PlannedStep[]): string[] {
  if (steps.length === 0) return []
  const names = steps.map(({ id, action }) => `${code(id, MAX_PATH_CHARS)} ${cellOf(action, MAX_PATH_CHARS)}`)
  return [`Steps: ${listFirst(names, MAX_STEPS, ' → ')}`]
}
const MAX_CELL_CHARS = 200

/** The result and the duration of each step, as one table. A step that failed the run is always listed. */
function stepsTable({ steps, error, outcome }: LocalReport): string[] {
  if (steps.length === 0) return []
  const isListed = (step: StepEntry, index: number): boolean => index < MAX_ROWS || step.status === 'failed'
  const listed = steps.filter(isListed).slice(0, MAX_ROWS + 1)
  const rows = listed.map(step => [
    `${MARKS[step.status]} ${code(step.id, MAX_ID_CHARS)} ${cellOf(step.action, MAX_ID_CHARS)}`,
    cellOf(resultCell(step, error), MAX_CELL_CHARS),
    step.status === 'not_run' || step.status === 'skipped'
      ? ''
      : durationInWords(step.duration_ms).replaceAll(' ', '&nbsp;'),
  ])
  const more = steps.length - listed.length
  const did = outcome === 'rolled_back' ? 'What it did, until it was rolled back' : 'What it did'
  return [table(['Step', did, 'Took'], rows), ...(more > 0 ? [`And ${countInWords(more, 'more step')}.`] : [])]
}

const MARKS: Record<StepEntry['status'], string> = {
  done: '✓',
  unchanged: '✓',
  skipped: '–',
  warned: '⚠️',
  failed: '✗',
  not_run: '–',
}

/** The summary gives the cause of a failed step above the table, but the cause of a warning only in the table. */
function resultCell(step: StepEntry, error: LocalReport['error']): string {
  switch (step.status) {
    case 'done':
      return step.did ?? (isMarkerAction(step.action) ? 'nothing to do' : 'done')
    case 'unchanged':
      return step.did ?? 'unchanged'
    case 'skipped':
      return 'skipped'
    case 'not_run':
      return 'not run'
    case 'warned':
      return step.error ?? 'warned'
    case 'failed':
      return step.error === null || (error?.step === step.id && withoutStep(error) === step.error)
        ? 'failed'
        : `failed: ${step.error}`
  }
}

const MAX_WARNINGS = 10
const MAX_NOTE_CHARS = 600

/** Highlighted blocks with the warnings, then the notices. */
function warningBlocks(report: LocalReport, notes: readonly Note[]): string[] {
  const others = withoutDrift(report, notes)
  const warnings = [...drift(report), ...provisioned(report), ...linesOf(others, 'warning')]
  return [...block('WARNING', warnings), ...block('NOTE', linesOf(others, 'notice'))]
}

/** Like `warningBlocks`, for a run that has no report. */
export function noteBlocks(notes: readonly Note[]): string[] {
  return [...block('WARNING', linesOf(notes, 'warning')), ...block('NOTE', linesOf(notes, 'notice'))]
}

function block(kind: 'WARNING' | 'NOTE', lines: readonly string[]): string[] {
  if (lines.length === 0) return []
  const more = lines.length - MAX_WARNINGS
  return [
    alert(kind, [...lines.slice(0, MAX_WARNINGS), ...(more > 0 ? [`and ${more} more, which the log lists`] : [])]),
  ]
}

function linesOf(notes: readonly Note[], level: Note['level']): string[] {
  return notes.flatMap(note => (note.level === level ? [cellOf(note.text, MAX_NOTE_CHARS)] : []))
}

/** Leaves out the warning about drift, because the report repeats it and also names the snapshots. */
function withoutDrift({ drift: entries = [] }: LocalReport, notes: readonly Note[]): readonly Note[] {
  const differing = entries.filter(({ compared }) => compared !== false)
  if (differing.length === 0) return notes
  const logged = describeDrift(differing)
  return notes.filter(({ text }) => text !== logged)
}

/**
 * Sentences about the drift before the deployment: the edits that the deployment replaced, those that it did not
 * replace, and the parts that could not be compared.
 */
function drift(report: LocalReport): string[] {
  const { drift: entries = [] } = report
  const snapshots = entries.flatMap(({ snapshot }) => (snapshot === undefined ? [] : [code(snapshot, MAX_NAME_CHARS)]))
  const unknown = entries
    .filter(({ compared }) => compared === false)
    .map(entry => code(pathOfEntry(entry), MAX_NAME_CHARS))
  return [
    ...edited(
      entries.filter(({ snapshot }) => snapshot !== undefined),
      ` This deployment replaced them; they are kept in ${listFirst(snapshots, MAX_WARNINGS)}.`,
    ),
    ...edited(
      entries.filter(({ snapshot }) => snapshot === undefined),
      fateWithoutSnapshot(report),
    ),
    ...(unknown.length === 0 ? [] : [`Not compared with what was installed: ${listFirst(unknown, MAX_WARNINGS)}.`]),
  ]
}

function edited(entries: readonly DriftEntry[], fate: string): string[] {
  const { names, more } = listDrift(entries)
  if (names.length === 0) return []
  return [`Edited on this host: ${names.map(shownName).join(', ')}${more}.${fate}`]
}

/** Describes the fate of edited files that have no snapshot; empty if the report does not show it. */
function fateWithoutSnapshot({ outcome, state, rollback }: LocalReport): string {
  if (outcome === 'success')
    return state === 'resolving_sequence' ? ' A real run would keep, in a snapshot, the files that it replaces.' : ''
  if (outcome !== 'failed' && outcome !== 'rolled_back') return ''
  const isAsBefore = rollback === null ? outcome === 'failed' : rollback.restored && rollback.verified !== false
  return isAsBefore ? ' They are as they were before this run.' : ''
}

/** A path, followed by its difference in parentheses. */
function shownName(name: string): string {
  const at = name.lastIndexOf(' (')
  return `${code(name.slice(0, at), MAX_NAME_CHARS)}${cellOf(name.slice(at), MAX_NAME_CHARS).replace(/^(?=\()/, ' ')}`
}

/** Warns about provision steps, whose work no rollback undoes even if it restores every file. */
function provisioned(report: LocalReport): string[] {
  const ran = provisionSteps(report)
  if (report.outcome === 'success') return []
  const unlisted = mayHaveRunUnlisted(report)
    ? [
        `The run was killed while it installed, so the step that ran then is not listed here. A ${code('provision')} step of its plan may have run, and no rollback undoes the work of such a step.`,
      ]
    : []
  if (ran.length === 0) return unlisted
  const names = ran.map(({ id, status }) => `${code(id, MAX_NAME_CHARS)}${status === 'failed' ? ' (failed)' : ''}`)
  return [`The work of these provision steps was not undone: ${listFirst(names, MAX_WARNINGS)}.`, ...unlisted]
}
