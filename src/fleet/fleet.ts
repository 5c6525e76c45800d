import { DeploymentError } from '../core/errors.ts'
import { cleanForeignText, countInWords, listFirst, listNames } from '../core/text.ts'
import {
  compareVersions,
  isOlderVersion,
  isOrderedVersion,
  isSameVersion,
  withoutLeadingV,
} from '../core/trust/versions.ts'
import { credibleTime, type HostReport, type HostReports, type ReportSubject, reportTimeOf } from './host-report.ts'

/** An operator's question about a fleet. */
export interface FleetQuestion {
  /** The version that every host should run. */
  readonly expectVersion: string | undefined
  /** The hosts of the fleet; by default, those that the hub knows. */
  readonly expectHosts: readonly string[] | undefined
  /** The age of a report, in milliseconds, after which its host counts as silent. */
  readonly maxAgeMs: number | undefined
  /** The host at which a rollout of the expected version stopped, if it did. */
  readonly stoppedAt: string | undefined
}

/**
 * What is known of a host. `current`: it runs the target version. `other`: it runs another version. `failed`: it runs
 * the target version, but its last deployment of that version did not succeed. `unknown`: its report does not show for
 * certain what it runs. `never`: it has never reported. `silent`: it runs the target version, but its last report is
 * too old or has no usable time.
 */
type Standing = 'current' | 'other' | 'failed' | 'unknown' | 'never' | 'silent'

export interface FleetHost {
  readonly id: string
  readonly standing: Standing
  /** Undefined if the host has never reported. */
  readonly report: HostReport | undefined
  /**
   * The host's last deployment, if the host needs one of the target version. `failed`: that deployment was of this
   * version, or of the latest one, and did not succeed. `untouched`: there was none, or it was of another version.
   * Undefined if the last report does not show which.
   */
  readonly attempt: 'failed' | 'untouched' | undefined
}

/** The hosts of a plugin or service at one moment. */
export interface Fleet {
  /** The hosts that the question is about, in natural order. */
  readonly hosts: readonly FleetHost[]
  /** The last report of every host that the hub lists, in natural order of the hosts. */
  readonly reports: readonly HostReport[]
  /** The expected version, or by default the newest version that any of `hosts` runs. */
  readonly target: string | undefined
  /** True if there is at least one host, every host is `current`, and no report is unusable. */
  readonly inSync: boolean
  /**
   * The hosts that need a deployment of the target version, and whose names are safe in a workflow or listed by the
   * operator.
   */
  readonly outdated: readonly string[]
  /** The number of other hosts that need such a deployment: their names are neither safe nor listed. */
  readonly unsafe: number
  /** The number of reports that may be about any host; 0 if the operator lists the hosts. */
  readonly unusable: number
  readonly notes: readonly string[]
}

/** A name that a workflow may use as a label, a group or a part of a path, even if a stranger chose it. */
const SAFE_NAME = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?$/

/** Created on first use, because creating a collator takes a long time and only the fleet action needs one. */
let natural: Intl.Collator | undefined

/** Sorts `app-2` before `app-10`. */
export function compareHosts(a: string, b: string): number {
  natural ??= new Intl.Collator('en', { numeric: true })
  return natural.compare(a, b) || (a < b ? -1 : Number(a > b))
}

/** Judges each host at the time `now`, in milliseconds since 1970. */
export function buildFleet(found: HostReports, question: FleetQuestion, now: number): Fleet {
  const { expectHosts, expectVersion, stoppedAt } = question
  const reports = found.reports.toSorted((a, b) => compareHosts(a.hostId, b.hostId))
  const byId = new Map(reports.map(report => [report.hostId, report]))
  const ids = expectHosts?.toSorted(compareHosts) ?? [...byId.keys()]
  const asked = ids.flatMap(id => byId.get(id) ?? [])
  const target = expectVersion ?? newestVersion(asked, now)
  const hosts = ids.map(id => {
    const report = byId.get(id)
    const standing = standingOf(report, { target, maxAgeMs: question.maxAgeMs, now })
    const attempt = id === stoppedAt ? 'failed' : attemptOf(report, target)
    return { id, report, standing, attempt: needsDeployment(standing) ? attempt : undefined }
  })
  // Without a list of hosts, an unidentified host may be any host of the fleet.
  const unusable = expectHosts === undefined ? found.unusable : 0
  const behind = hosts.filter(host => needsDeployment(host.standing)).map(({ id }) => id)
  const outdated = behind.filter(id => expectHosts !== undefined || SAFE_NAME.test(id))
  return {
    hosts,
    reports,
    target,
    inSync: hosts.length > 0 && unusable === 0 && hosts.every(({ standing }) => standing === 'current'),
    outdated,
    unsafe: behind.length - outdated.length,
    unusable,
    notes: found.notes,
  }
}

function standingOf(
  report: HostReport | undefined,
  { target, maxAgeMs, now }: Pick<Fleet, 'target'> & Pick<FleetQuestion, 'maxAgeMs'> & { readonly now: number },
): Standing {
  if (report === undefined) return 'never'
  const { version, attempted, status } = report
  if (version === null || target === undefined) return 'unknown'
  if (!isSameVersion(version, target)) return 'other'
  if (status !== 'success') {
    if (attempted === null) return 'unknown'
    if (isSameVersion(attempted, target)) return 'failed'
  }
  return maxAgeMs !== undefined && isSilent(credibleTime(reportTimeOf(report), now), now - maxAgeMs)
    ? 'silent'
    : 'current'
}

function attemptOf(report: HostReport | undefined, target: string | undefined): FleetHost['attempt'] {
  if (report === undefined) return 'untouched'
  const { attempted, status } = report
  if (attempted === null || target === undefined) return undefined
  // A deployment that fails early reports the version as it was asked for.
  if (attempted !== 'latest' && !isSameVersion(attempted, target)) return 'untouched'
  return status === 'failed' || status === 'rolled_back' ? 'failed' : undefined
}

function isSilent(time: number | undefined, since: number): boolean {
  return time === undefined || time < since
}

function needsDeployment(standing: Standing): boolean {
  return standing !== 'current' && standing !== 'silent'
}

/** If two versions cannot be ordered, the one whose report the hub received later counts as newer. */
function newestVersion(reports: readonly HostReport[], now: number): string | undefined {
  let newest: HostReport | undefined
  for (const report of reports) if (report.version !== null && isAhead(report, newest, now)) newest = report
  return newest?.version ?? undefined
}

function isAhead(report: HostReport, newest: HostReport | undefined, now: number): boolean {
  if (report.version === null || newest === undefined || newest.version === null) return newest === undefined
  const isOlder = isOlderVersion(newest.version, report.version)
  return isOlder ?? (credibleTime(report.receivedAt, now) ?? 0) > (credibleTime(newest.receivedAt, now) ?? 0)
}

/**
 * Groups the hosts by version, newest version first. Versions that cannot be compared come last, in reverse natural
 * order. Leaves out hosts whose version is unknown.
 */
export function hostsByVersion(reports: readonly HostReport[]): Map<string, string[]> {
  const groups = new Map<string, string[]>()
  for (const { version, hostId } of reports) {
    if (version === null) continue
    const key = withoutLeadingV(version)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [hostId])
    else group.push(hostId)
  }
  const natural = [...groups].sort(([a], [b]) => compareHosts(b, a))
  const newestFirst = natural
    .filter(([version]) => isOrderedVersion(version))
    .sort(([a], [b]) => compareVersions(b, a) ?? compareHosts(b, a))
  return new Map([...newestFirst, ...natural.filter(([version]) => !isOrderedVersion(version))])
}

const MAX_NAMED_HOSTS = 20
const MAX_NAME_CHARS = 64

/** Builds DeploymentError `fleet_out_of_sync`, which names hosts that are not known to run the expected version. */
export function outOfSync(fleet: Fleet, { kind, slug }: ReportSubject): DeploymentError {
  const version = fleet.target ?? 'the expected version'
  if (fleet.hosts.length === 0 && fleet.unusable === 0)
    return outOfSyncError(
      `The hub knows no host of ${kind} ${slug}, so no host is known to run ${version}: check slug, kind, and api-key or access-token.`,
    )
  const nameless =
    fleet.unusable === 0 ? '' : ` Reports from the hub without a usable kind, slug and host_id: ${fleet.unusable}.`
  return outOfSyncError(
    [`${describeHosts(fleet.hosts, `${slug} ${version}`)}${nameless}`, ...remediesFor(fleet)].join(' '),
  )
}

/** Counts the hosts that are known to run a version, in one sentence without its period. */
export function countKnown(hosts: readonly FleetHost[], wanted: string): string {
  const there = hosts.filter(isCurrent).length
  const all = countInWords(hosts.length, 'host')
  if (hosts.length === 0) return `No host is known to run ${wanted}`
  if (there === hosts.length) return `${wanted} is known to run on ${all}`
  return `${countInWords(there)} of ${all} ${there === 1 ? 'is' : 'are'} known to run ${wanted}`
}

/** Counts the hosts that are known to run a version, and names the other hosts. */
function describeHosts(hosts: readonly FleetHost[], wanted: string): string {
  const behind = hosts.filter(host => !isCurrent(host))
  const there = hosts.length - behind.length
  const all = countInWords(hosts.length, 'host')
  if (behind.length === 0) return `${countKnown(hosts, wanted)}.`
  if (hosts.length === 1) return `The only host is not known to run ${wanted}: ${nameHosts(behind)}.`
  if (there === 0)
    return `${hosts.length === 2 ? 'Neither' : 'None'} of the ${all} is known to run ${wanted}: ${nameHosts(behind)}.`
  return `${wanted} is known to run on ${countInWords(there)} of ${all}, but not on ${nameHosts(behind)}.`
}

/** Says at which host a rollout stopped, and how many hosts it left alone, in one sentence without its period. */
export function describeStop(stoppedAt: string, { hosts }: Pick<Fleet, 'hosts'>): string {
  const untouched = hosts.filter(({ attempt }) => attempt === 'untouched').length
  return `Stopped at ${stoppedAt}; ${countInWords(untouched, 'host')} untouched`
}

function remediesFor({ hosts, outdated, unsafe, unusable, target }: Fleet): string[] {
  const failed = hosts.flatMap(({ id, attempt }) => (attempt === 'failed' ? id : []))
  const unnamed = unsafe === 1 ? ['this host', 'it'] : ['these hosts', 'them']
  const [behind, them] = outdated.length > 0 ? ['the hosts in the output outdated', 'them'] : unnamed
  const isSilent = hosts.some(({ standing }) => standing === 'silent')
  return [
    ...(failed.length > 0
      ? [`Correct the cause on ${listNames(failed)} before you deploy ${target} again.`]
      : outdated.length + unsafe > 0
        ? [`Deploy to ${behind}, or give ${them} more time with wait-seconds.`]
        : []),
    ...(isSilent ? ['Find out why the silent hosts have no recent report, or raise max-age-hours.'] : []),
    ...(unusable > 0 ? ["Ask the hub's operator about the unusable reports, or list the hosts in expect-hosts."] : []),
  ]
}

/** Describes the progress of a fleet, for the log of a run that waits for the fleet. */
export function describeProgress(fleet: Fleet): string {
  const behind = fleet.hosts.filter(host => !isCurrent(host))
  const missing = behind.length === 0 ? '' : `; waiting for ${nameHosts(behind)}`
  return `${countKnown(fleet.hosts, fleet.target ?? 'the version')}${missing}`
}

function isCurrent({ standing }: FleetHost): boolean {
  return standing === 'current'
}

/** Describes what a host runs, according to the hub. */
export function describeStanding({ standing, report }: FleetHost): string {
  const version = report?.version ?? 'unknown'
  switch (standing) {
    case 'current':
    case 'other':
      return version
    case 'failed':
      return `${version}, but its last deployment of that version ended as ${report?.status}`
    case 'unknown':
      return describeUnknown(report)
    case 'never':
      return 'never reported'
    case 'silent':
      return `${version}, but silent: last report at ${(report && reportTimeOf(report)) ?? 'an unknown time'}`
  }
}

function describeUnknown(report: HostReport | undefined): string {
  if (report?.isContradicted) return 'unknown: its reports contradict each other'
  const known = report?.version ?? null
  const unreadable = report?.attempted === null ? ' and names no usable version' : ''
  if (known === null) return `unknown: its last report says ${report?.status}${unreadable}`
  return `perhaps ${known}: its last report says so, but has the status ${report?.status} and does not say which version that deployment was to install`
}

function nameHosts(hosts: readonly FleetHost[]): string {
  const named = hosts.map(host => `${cleanForeignText(host.id, MAX_NAME_CHARS)} (${describeStanding(host)})`)
  return listFirst(named, MAX_NAMED_HOSTS)
}

function outOfSyncError(message: string): DeploymentError {
  return new DeploymentError('fleet_out_of_sync', message)
}
