import type { DeployError } from '../../core/errors.ts'
import { alert, cell, cellOf, countInWords, listFirst, table } from '../../core/text.ts'
import {
  compareHosts,
  countKnown,
  describeStanding,
  describeStop,
  type Fleet,
  type FleetHost,
  hostsByVersion,
} from '../../fleet/fleet.ts'
import { reportTimeOf } from '../../fleet/host-report.ts'
import { readingFailure } from './failure.ts'
import type { Headline } from './outcome.ts'

const MAX_ROWS = 200
const MAX_VERSIONS = 20
const MAX_OTHERS = 20
const MAX_CELL_CHARS = 120
const [MINUTE_MS, HOUR_MS, DAY_MS] = [60_000, 3_600_000, 86_400_000]

export interface FleetFacts {
  /** Undefined if the input is missing or malformed; in that case, `fleet` is undefined too. */
  readonly slug: string | undefined
  /** Undefined if there was no usable answer about the fleet. */
  readonly fleet: Fleet | undefined
  /** The host at which a rollout stopped, if it did. */
  readonly stoppedAt: string | undefined
  /** The error that fails the step. */
  readonly error: DeployError | undefined
  /** True if the operator named the version that every host must run. */
  readonly isGate: boolean
  /** Sentences about the hub's reports, and about hosts that the outputs leave out. */
  readonly notes: readonly string[]
  /** Milliseconds since 1970. */
  readonly now: number
}

/** Describes what a fleet runs, or how far a stopped rollout got, in one line. */
export function describeFleet(facts: FleetFacts): Headline {
  const { fleet, stoppedAt } = facts
  if (stoppedAt === undefined) return describeVersions(facts)
  if (fleet !== undefined && !fleet.inSync) return { mark: '❌', sentence: describeStop(stoppedAt, fleet) }
  const { sentence } = describeVersions(facts)
  return { mark: '❌', sentence: `Stopped at ${stoppedAt}. ${sentence}` }
}

function describeVersions({ slug, fleet, isGate }: FleetFacts): Headline {
  if (fleet === undefined) {
    const subject = slug === undefined ? 'the hosts' : `the hosts of ${slug}`
    return { mark: '❌', sentence: `What runs on ${subject} is not known` }
  }
  const { hosts, target } = fleet
  const mark = isGate ? '❌' : '⚠️'
  if (hosts.length === 0) return { mark, sentence: `The hub knows no host of ${slug}` }
  if (target === undefined) return { mark, sentence: `No host is known to run any version of ${slug}` }
  if (fleet.inSync) return { mark: '✅', sentence: `${allRun(hosts.length)} ${slug} ${target}` }
  if (hosts.length === 1 && hosts[0]?.standing !== 'current')
    return { mark, sentence: `The only host is not known to run ${slug} ${target}` }
  return { mark, sentence: countKnown(hosts, `${slug} ${target}`) }
}

function allRun(count: number): string {
  if (count === 1) return '1 host runs'
  return count === 2 ? 'Both hosts run' : `All ${countInWords(count, 'host')} run`
}

/**
 * Builds the job summary of a fleet as Markdown: the finding, the counts, and the hosts. The hosts that need attention
 * come first.
 */
export function buildFleetSummary(facts: FleetFacts): string {
  const { fleet, error, notes, now } = facts
  const { mark, sentence } = describeFleet(facts)
  const blocks = [
    `### ${mark} ${cell(sentence)}`,
    ...readingFailure(error),
    ...(notes.length === 0 ? [] : [alert('NOTE', notes.map(cell))]),
    ...(fleet === undefined ? [] : fleetBlocks(fleet, now)),
  ]
  return `${blocks.join('\n\n')}\n`
}

function fleetBlocks(fleet: Fleet, now: number): string[] {
  const { hosts } = fleet
  if (hosts.length === 0) return []
  const more = hosts.length - MAX_ROWS
  return [
    countsOf(fleet),
    table(
      ['Host', 'Runs', 'Last deployment', 'Reported'],
      byAttention(hosts)
        .slice(0, MAX_ROWS)
        .map(host => rowOf(host, now)),
    ),
    ...(more > 0 ? [`And ${countInWords(more, 'more host')}.`] : []),
    ...othersOf(fleet),
  ]
}

/**
 * Sorts hosts that are not `current` first. Within each group, hosts whose last deployment did not succeed come first.
 * Otherwise, keeps the given order.
 */
function byAttention(hosts: readonly FleetHost[]): FleetHost[] {
  return hosts.toSorted((a, b) => rankOf(a) - rankOf(b))
}

function rankOf({ standing, report }: FleetHost): number {
  const isFailed = report !== undefined && report.status !== 'success'
  if (standing === 'current') return isFailed ? 2 : 3
  return isFailed ? 0 : 1
}

function countsOf({ hosts }: Fleet): string {
  const reports = hosts.flatMap(({ report }) => report ?? [])
  const groups = [...hostsByVersion(reports)].map(([version, ids]) => ({ version, count: ids.length }))
  const known = groups.reduce((sum, { count }) => sum + count, 0)
  const counts = groups
    .toSorted((a, b) => b.count - a.count)
    .slice(0, MAX_VERSIONS)
    .map(({ version, count }) => `${cell(version)}: ${count}`)
  const others = groups.length - counts.length
  const never = hosts.length - reports.length
  return [
    ...counts,
    ...(others > 0 ? [countInWords(others, 'other version')] : []),
    ...(reports.length > known ? [`unknown version: ${reports.length - known}`] : []),
    ...(never > 0 ? [`never reported: ${never}`] : []),
  ].join(' · ')
}

function rowOf(host: FleetHost, now: number): string[] {
  const { id, report } = host
  const mark = host.standing === 'current' ? '' : '⚠️ '
  return [
    `${mark}${cellOf(id, MAX_CELL_CHARS)}`,
    cellOf(describeStanding(host), MAX_CELL_CHARS),
    cellOf(attemptOf(host), MAX_CELL_CHARS),
    report === undefined ? '' : ageOf(reportTimeOf(report), now),
  ]
}

function attemptOf({ report }: FleetHost): string {
  if (report === undefined) return 'none'
  const { status, attempted, error } = report
  return `${status} ${attempted ?? ''}${error === null ? '' : `: ${error}`}`
}

function ageOf(time: string | null, now: number): string {
  const age = now - Date.parse(time ?? '')
  if (Number.isNaN(age)) return 'at an unknown time'
  if (age < -MINUTE_MS) return 'in the future'
  if (age < MINUTE_MS) return 'just now'
  if (age < HOUR_MS) return `${Math.floor(age / MINUTE_MS)} min ago`
  return age < 2 * DAY_MS ? `${Math.floor(age / HOUR_MS)} h ago` : `${Math.floor(age / DAY_MS)} days ago`
}

/** Names the hosts that have reported but are not among the expected hosts. */
function othersOf({ hosts, reports }: Fleet): string[] {
  const asked = new Set(hosts.map(({ id }) => id))
  const others = reports.flatMap(({ hostId }) => (asked.has(hostId) ? [] : [hostId])).toSorted(compareHosts)
  if (others.length === 0) return []
  const named = others.map(id => cellOf(id, MAX_CELL_CHARS))
  return [`Not in expect-hosts: ${listFirst(named, MAX_OTHERS)}.`]
}
