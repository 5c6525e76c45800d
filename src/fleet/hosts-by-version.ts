import { compareVersions, isOrderedVersion, withoutLeadingV } from '../core/trust/versions.ts'
import { compareHosts } from './fleet.ts'
import type { HostReport } from './host-report.ts'

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
