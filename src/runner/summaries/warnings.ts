import { alert, cellOf, code } from '../../core/markdown.ts'
import { listFirst } from '../../core/quantities.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import { describeDrift } from '../../install/steps/parts/report-drift.ts'
import { listDrift, pathOfEntry } from '../../install/transaction/drift-names.ts'
import type { DriftEntry } from '../../install/transaction/facts.ts'
import type { Note } from '../runner-log.ts'
import { mayHaveRunUnlisted, provisionSteps } from './acting-steps.ts'

const MAX_LISTED = 10
const MAX_NOTE_CHARS = 600
const MAX_NAME_CHARS = 150

/** Highlighted blocks with the warnings, then the notices. */
export function warningBlocks(report: LocalReport, notes: readonly Note[]): string[] {
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
  const more = lines.length - MAX_LISTED
  return [alert(kind, [...lines.slice(0, MAX_LISTED), ...(more > 0 ? [`and ${more} more, which the log lists`] : [])])]
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
      ` This deployment replaced them; they are kept in ${listFirst(snapshots, MAX_LISTED)}.`,
    ),
    ...edited(
      entries.filter(({ snapshot }) => snapshot === undefined),
      fateWithoutSnapshot(report),
    ),
    ...(unknown.length === 0 ? [] : [`Not compared with what was installed: ${listFirst(unknown, MAX_LISTED)}.`]),
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
  return [`The work of these provision steps was not undone: ${listFirst(names, MAX_LISTED)}.`, ...unlisted]
}
