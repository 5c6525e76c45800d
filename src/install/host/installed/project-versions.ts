import { snapshotsFrom } from './origin.ts'
import { nameOf } from './row-place.ts'
import type { InstalledRow, InstalledVersion, ProjectVersion, RemovedRow } from './rows.ts'

/** The limit for one project. Without it, a project that changes only its version would fill the record. */
const MAX_PROJECT_VERSIONS = 20

/**
 * Returns the versions that stay recorded, including `added` if there is one. For each project, these are the newest 20
 * versions whose parts this host still has (see `isLeft`). A version whose sources had different contents at different
 * times is recorded once for each set of trees.
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

/** True if two entries are the same version with the same trees. */
export function isSameSet(a: ProjectVersion, b: ProjectVersion): boolean {
  const treesOf = ({ parts }: ProjectVersion): string[] =>
    parts.map(part => JSON.stringify([nameOf(part), part.directory, part.tree_digest, part.tree_record])).sort()
  return isSameName(a, b) && treesOf(a).join() === treesOf(b).join()
}

/** The facts that decide whether a version is still useful. */
interface Remains {
  readonly rows: readonly (InstalledRow | RemovedRow)[]
  /** Whether no later entry in the list is for the same version. */
  readonly isNewest: boolean
}

/**
 * True if the host still has each part of a version. Also true of the newest entry for a version if the host has a
 * snapshot that was recorded with that version.
 */
function isLeft({ slug, version, parts }: ProjectVersion, { rows, isNewest }: Remains): boolean {
  const known = rows.flatMap(row => [...('version' in row ? [row] : []), ...row.snapshots])
  const isNamed = rows.some(row =>
    snapshotsFrom(row, { contract: 'project', slug }).some(snapshot => snapshot.project_version === version),
  )
  return (isNewest && isNamed) || parts.every(part => known.some(row => isSameTree(row, part)))
}

/** True if two rows have the same tree, and the same record of that tree. */
export function isSameTree(
  a: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
  b: Pick<InstalledVersion, 'tree_digest' | 'tree_record'>,
): boolean {
  return a.tree_digest !== null && a.tree_digest === b.tree_digest && a.tree_record === b.tree_record
}
