import { snapshotsFrom } from './origin.ts'
import { nameOf } from './row-place.ts'
import type { InstalledRow, InstalledVersion, ProjectVersion, RemovedRow } from './rows.ts'

/** For one project, so that a project that changes nothing but its version does not fill the record. */
const MAX_PROJECT_VERSIONS = 20

/**
 * Returns the versions that stay recorded when one is added: those that still have parts on this host. A version whose
 * source has supplied other trees since is recorded once for each set of trees.
 */
export function retainVersions(
  known: readonly ProjectVersion[],
  added: ProjectVersion | undefined,
  rows: readonly (InstalledRow | RemovedRow)[],
): ProjectVersion[] {
  const others = known.filter(version => added === undefined || !isSameSet(version, added))
  const all = added === undefined ? others : [...others, added]
  const left = all.filter((version, index) =>
    isLeft(version, { rows, isNewest: !all.slice(index + 1).some(later => isSameName(later, version)) }),
  )
  const slugs = [...new Set(left.map(({ slug }) => slug))].filter(slug => slug !== added?.slug)
  const ordered = [...slugs, ...(added === undefined ? [] : [added.slug])]
  return ordered.flatMap(slug => left.filter(version => version.slug === slug).slice(-MAX_PROJECT_VERSIONS))
}

function isSameName(a: ProjectVersion, b: ProjectVersion): boolean {
  return a.slug === b.slug && a.version === b.version
}

/** True if two are the same version with the same trees. */
export function isSameSet(a: ProjectVersion, b: ProjectVersion): boolean {
  const treesOf = ({ parts }: ProjectVersion): string[] =>
    parts.map(part => JSON.stringify([nameOf(part), part.directory, part.tree_digest, part.tree_record])).sort()
  return isSameName(a, b) && treesOf(a).join() === treesOf(b).join()
}

/** The facts that decide whether a version is still of use. */
interface Remains {
  readonly rows: readonly (InstalledRow | RemovedRow)[]
  /** Whether no later version in the list has the same name. */
  readonly isNewest: boolean
}

/** True if the host still has each part of a version, or a snapshot that was recorded with this version. */
function isLeft({ slug, version, parts }: ProjectVersion, { rows, isNewest }: Remains): boolean {
  const known = rows.flatMap(row => [...('version' in row ? [row] : []), ...row.snapshots])
  const isNamed = rows.some(row =>
    snapshotsFrom(row, { contract: 'project', slug }).some(snapshot => snapshot.project_version === version),
  )
  return (isNewest && isNamed) || parts.every(part => known.some(row => isSameTree(row, part)))
}

/** True if two rows have the same tree, and the same record of it. */
export function isSameTree(
  a: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
  b: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
): boolean {
  return a.tree_digest !== null && a.tree_digest === b.tree_digest && a.tree_record === b.tree_record
}
