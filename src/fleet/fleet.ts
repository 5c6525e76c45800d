import { isOlderVersion, isSameVersion } from '../core/trust/versions.ts'
import { type HostReport, type HostReports, timeOf } from './host-report.ts'

/** An operator's question about a fleet. */
export interface FleetQuestion {
  /** The version that every host should run. */
  readonly expectVersion: string | undefined
  /** The hosts of the fleet; by default, those that the hub knows. */
  readonly expectHosts: readonly string[] | undefined
  /** The age of a report, in milliseconds, after which its host counts as silent. */
  readonly maxAgeMs: number | undefined
}

/**
 * What is known of a host. `current`: it runs the target version. `other`: it runs another version. `failed`: it runs
 * the target version, but its last deployment of that version did not succeed. `unknown`: its report does not show for
 * certain what it runs. `never`: it has never reported. `silent`: it runs the target version, but its last report is
 * too old or has no usable time.
 */
export type Standing = 'current' | 'other' | 'failed' | 'unknown' | 'never' | 'silent'

export interface FleetHost {
  readonly id: string
  readonly standing: Standing
  /** Undefined if the host has never reported. */
  readonly report: HostReport | undefined
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
  const { expectHosts, expectVersion } = question
  const reports = found.reports.toSorted((a, b) => compareHosts(a.hostId, b.hostId))
  const byId = new Map(reports.map(report => [report.hostId, report]))
  const ids = expectHosts?.toSorted(compareHosts) ?? [...byId.keys()]
  const asked = ids.flatMap(id => byId.get(id) ?? [])
  const target = expectVersion ?? newestVersion(asked, now)
  const hosts = ids.map(id => {
    const report = byId.get(id)
    return { id, report, standing: standingOf(report, { target, maxAgeMs: question.maxAgeMs, now }) }
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
  return maxAgeMs !== undefined && isSilent(timeOf(report, now), now - maxAgeMs) ? 'silent' : 'current'
}

function isSilent(time: number | undefined, since: number): boolean {
  return time === undefined || time < since
}

function needsDeployment(standing: Standing): boolean {
  return standing !== 'current' && standing !== 'silent'
}

/** If two versions cannot be ordered, the one that was reported later counts as newer. */
function newestVersion(reports: readonly HostReport[], now: number): string | undefined {
  let newest: HostReport | undefined
  for (const report of reports) if (report.version !== null && isAhead(report, newest, now)) newest = report
  return newest?.version ?? undefined
}

function isAhead(report: HostReport, newest: HostReport | undefined, now: number): boolean {
  if (report.version === null || newest === undefined || newest.version === null) return newest === undefined
  const isOlder = isOlderVersion(newest.version, report.version)
  return isOlder ?? (timeOf(report, now) ?? 0) > (timeOf(newest, now) ?? 0)
}
