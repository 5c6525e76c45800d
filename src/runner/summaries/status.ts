import type { DeployError } from '../../core/errors.ts'
import { alert, cell, cellOf, cleanForeignText, code, countInWords, listFirst, table } from '../../core/text.ts'
import { type Place, placeName, placePath } from '../../install/host/layout.ts'
import { INSTEAD_WORDS } from '../../install/journal/facts.ts'
import {
  type How,
  type InspectedPart,
  type Inspection,
  isDrifted,
  isPartDrifted,
  type PartDrift,
} from '../../install/status.ts'
import { readingFailure } from './failure.ts'
import type { Headline } from './outcome.ts'

const MAX_LISTED_PATHS = 20
const MAX_ROWS = 300
const MAX_LISTED_SNAPSHOTS = 5
const MAX_CELL_CHARS = 150

/** The host that a status is about. */
export interface StatusHost {
  readonly name: string
  readonly root: string | undefined
}

export interface StatusFacts {
  readonly host: StatusHost
  /** The error that fails the step. */
  readonly error: DeployError | undefined
  /** Sentences about outputs that do not list everything. */
  readonly cut: readonly string[]
}

const HOW_WORDS: Record<How, string> = {
  added: 'added',
  removed: 'removed',
  changed: 'changed',
  mode: 'mode or owner changed',
  replaced: 'replaced by another kind of entry',
  writable: 'a directory that another account can write',
}

/** Describes the findings on a host, in one line. */
export function describeStatus(inspection: Inspection, { name }: StatusHost): Headline {
  const { mark, sentence } = describeInspection(inspection)
  return { mark, sentence: `${sentence} on ${name}` }
}

/** Describes a host that could not be inspected. */
export function describeFailedStatus({ name }: StatusHost): Headline {
  return { mark: '❌', sentence: `It is not known what is installed on ${name}` }
}

/** Builds the job summary of a status as Markdown: the findings, then the parts. Parts that differ come first. */
export function buildStatusSummary(inspection: Inspection, { host, error, cut }: StatusFacts): string {
  const { parts } = inspection
  const { mark, sentence } = describeStatus(inspection, host)
  const findings = findingsOf(inspection).map(cell)
  const notes = [...describeUnrecorded(inspection), ...cut].map(cell)
  const blocks = [
    `### ${mark} ${cell(sentence)}`,
    ...readingFailure(error),
    ...(error !== undefined || findings.length === 0 ? [] : [alert('WARNING', findings)]),
    ...(notes.length === 0 ? [] : [alert('NOTE', notes)]),
    ...(parts.length === 0 ? [] : [table(['Part', 'Version', 'Installed', 'Files', 'Snapshots'], rowsOf(inspection))]),
    ...(parts.length > MAX_ROWS ? [`And ${countInWords(parts.length - MAX_ROWS, 'more part')}.`] : []),
    `Project root: ${code(host.root ?? '')}`,
  ]
  return `${blocks.join('\n\n')}\n`
}

/** Builds the summary for a host that could not be inspected. */
export function buildFailedStatusSummary(error: DeployError, host: StatusHost): string {
  const { mark, sentence } = describeFailedStatus(host)
  return `${[`### ${mark} ${cell(sentence)}`, ...readingFailure(error)].join('\n\n')}\n`
}

/** Describes each finding that needs attention. */
export function findingsOf(inspection: Inspection): string[] {
  const { activity, parts } = inspection
  return [
    ...(activity.kind === 'interrupted' ? [activity.sentence] : []),
    ...(activity.kind === 'busy' ? [describeBusy(activity.holder)] : []),
    ...describeDriftOfParts(inspection),
    ...describePending(parts),
  ]
}

/**
 * Describes the files that differ, then the parts that were restored from a modified snapshot, then those that could
 * not be compared.
 */
export function describeDriftOfParts({ parts }: Pick<Inspection, 'parts'>): string[] {
  const names = parts.flatMap(part => namesIn(part))
  const count = parts.reduce((sum, { drift }) => sum + countOf(drift), 0)
  const listed = names
    .slice(0, MAX_LISTED_PATHS)
    .map(name => cleanForeignText(name, MAX_CELL_CHARS))
    .join(', ')
  const more = count - Math.min(names.length, MAX_LISTED_PATHS)
  const differing = `Files on this host differ from what was installed: ${listed}${more > 0 ? ` and ${more} more` : ''}.`
  return [...(count === 0 ? [] : [differing]), ...modifiedIn(parts), ...notComparedIn(parts)]
}

/** Names the parts that a rollback restored from a modified snapshot. */
function modifiedIn(parts: readonly InspectedPart[]): string[] {
  const names = parts.flatMap(({ row, ...part }) =>
    row.modified ? [`${placePath(part)} ${row.version ?? ''}`.trim()] : [],
  )
  if (names.length === 0) return []
  const listed = listFirst(names, MAX_LISTED_PATHS)
  return [
    names.length === 1
      ? `${listed} was restored from a snapshot that had been changed on this host, so its files are not those of the artifact.`
      : `${listed} were each restored from a snapshot that had been changed on this host, so their files are not those of their artifacts.`,
  ]
}

function notComparedIn(parts: readonly InspectedPart[]): string[] {
  const lasting = parts.flatMap(({ drift, ...part }) =>
    drift?.kind === 'not compared' && !drift.isPassing
      ? [`${placePath(part)} could not be compared: ${drift.why}`]
      : [],
  )
  const more = lasting.length - MAX_LISTED_PATHS
  return [
    ...lasting.slice(0, MAX_LISTED_PATHS),
    ...(more > 0 ? [`${countInWords(more, 'more part')} could not be compared.`] : []),
  ]
}

/**
 * Names unrecorded directories in one sentence: they may have been created by hand, or the record may have been lost.
 */
export function describeUnrecorded({ unrecorded }: Pick<Inspection, 'unrecorded'>): string[] {
  if (unrecorded.length === 0) return []
  const names = unrecorded.map(name => cleanForeignText(name, MAX_CELL_CHARS))
  return [`Not recorded as installed, so not compared: ${listFirst(names, MAX_LISTED_PATHS)}.`]
}

function describeBusy(holder: string): string {
  return `A deployment is currently changing this host (${holder}), so the installed files were not compared. Run this action again when the deployment has ended.`
}

function describePending(parts: readonly InspectedPart[]): string[] {
  const ids = parts.flatMap(({ row }) => (row.service_pending ? [row.id] : []))
  if (ids.length === 0) return []
  const services = ids.length === 1 ? 'The service' : 'The services'
  return [
    `${services} of ${listFirst(ids, MAX_LISTED_PATHS)} could not be restarted or checked after a rollback. The next run whose host config names ${ids.length === 1 ? 'it' : 'them'} does that.`,
  ]
}

function describeInspection(inspection: Inspection): Headline {
  const { parts, activity } = inspection
  const count = `${parts.length} ${parts.length === 1 ? 'part is' : 'parts are'}`
  if (activity.kind === 'interrupted')
    return { mark: '⚠️', sentence: 'An interrupted deployment is waiting for its recovery' }
  if (activity.kind === 'busy') return { mark: '⏳', sentence: 'A deployment is in progress' }
  if (parts.length === 0 && inspection.unrecorded.length > 0)
    return { mark: '⚠️', sentence: 'Nothing is recorded as installed' }
  if (parts.length === 0) return { mark: '✅', sentence: 'Nothing is installed' }
  if (isDrifted(inspection) === false) return { mark: '✅', sentence: `${count} as installed` }
  const all = countInWords(parts.length, 'part')
  const unknown = parts.filter(({ drift }) => drift?.kind === 'not compared').length
  const differing = parts.filter(isPartDrifted).length - unknown
  if (differing === 0) return { mark: '⚠️', sentence: `${unknown} of ${all} could not be compared` }
  return {
    mark: '⚠️',
    sentence: `${differing} of ${all} ${differing === 1 ? 'differs' : 'differ'} from what was installed`,
  }
}

function rowsOf({ parts, snapshots }: Inspection): string[][] {
  const retained = Map.groupBy(snapshots, placeName)
  const inOrder = parts.toSorted((a, b) => Number(isPartDrifted(b)) - Number(isPartDrifted(a)))
  return inOrder
    .slice(0, MAX_ROWS)
    .map(({ row, drift, ...place }) => [
      code(placePath(place)),
      cell(row.version ?? row.project_version ?? 'unknown'),
      cell(dateOf(row.installed_at)),
      cellOf(drift === undefined && row.modified ? '⚠️ a modified snapshot' : filesInWords(drift), MAX_CELL_CHARS),
      cell(versionsOf(retained.get(placeName(place)) ?? [])),
    ])
}

function filesInWords(drift: PartDrift | undefined): string {
  if (drift === undefined) return 'as installed'
  switch (drift.kind) {
    case 'differs':
      return `⚠️ ${drift.count} ${drift.count === 1 ? 'differs' : 'differ'}`
    case 'no directory':
      return `⚠️ ${INSTEAD_WORDS[drift.instead]}`
    case 'not compared':
      return `not compared: ${drift.why}`
  }
}

function versionsOf(snapshots: readonly Inspection['snapshots'][number][]): string {
  const names = snapshots
    .slice(-MAX_LISTED_SNAPSHOTS)
    .map(({ row }) => `${row.version ?? 'unknown'}${row.modified ? ' (modified)' : ''}`)
  const more = snapshots.length - names.length
  return names.length === 0 ? 'none' : `${names.join(', ')}${more > 0 ? ` and ${more} older` : ''}`
}

/** The time in UTC, to the minute. */
function dateOf(time: string | null): string {
  return time === null ? 'unknown' : `${time.slice(0, 10)} ${time.slice(11, 16)} UTC`
}

function namesIn({ drift, ...part }: Place & { readonly drift: PartDrift | undefined }): string[] {
  if (drift?.kind === 'no directory') return [`${placePath(part)} (${INSTEAD_WORDS[drift.instead]})`]
  if (drift?.kind !== 'differs') return []
  const nameOf = (path: string): string => (path === '.' ? placePath(part) : `${placePath(part)}/${path}`)
  return drift.paths.map(({ path, how }) => `${nameOf(path)} (${HOW_WORDS[how]})`)
}

function countOf(drift: PartDrift | undefined): number {
  if (drift?.kind === 'differs') return drift.count
  return drift?.kind === 'no directory' ? 1 : 0
}
