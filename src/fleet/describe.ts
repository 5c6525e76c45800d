import { DeploymentError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { countInWords, listFirst } from '../core/quantities.ts'
import type { Fleet, FleetHost } from './fleet.ts'
import type { HostReport, ReportSubject } from './host-report.ts'

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

function remediesFor({ hosts, outdated, unsafe, unusable }: Fleet): string[] {
  const unnamed = unsafe === 1 ? ['this host', 'it'] : ['these hosts', 'them']
  const [behind, them] = outdated.length > 0 ? ['the hosts in the output outdated', 'them'] : unnamed
  const isSilent = hosts.some(({ standing }) => standing === 'silent')
  return [
    ...(outdated.length + unsafe > 0 ? [`Deploy to ${behind}, or give ${them} more time with wait-seconds.`] : []),
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
      return `${version}, but silent: last report at ${report?.completedAt ?? 'an unknown time'}`
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
