import semver from 'semver'

/**
 * Sorts versions, newest first: releases by semver, then pre-releases by semver, then other names by publication time.
 * So a pre-release comes first only if none of the versions is a release.
 */
export function newestFirst<T extends { version: string; published_at: string }>(versions: readonly T[]): T[] {
  return [...versions].sort((a, b) => rank(a.version) - rank(b.version) || compareWithinRank(b, a))
}

function rank(version: string): number {
  const parsed = semver.parse(version)
  if (parsed === null) return 2
  return parsed.prerelease.length === 0 ? 0 : 1
}

function compareWithinRank(
  a: { version: string; published_at: string },
  b: { version: string; published_at: string },
): number {
  const byVersion = semver.valid(a.version) === null ? 0 : semver.compareBuild(a.version, b.version)
  return byVersion || (a.published_at < b.published_at ? -1 : 1)
}
