import type { Stats } from 'node:fs'

const GROUP_AND_OTHERS = 0o077

/**
 * Returns what is wrong with a directory that must be ours alone (its type, owner or mode), or undefined if nothing is
 * wrong.
 */
export function findExposureOf(found: Stats, us: number): 'type' | 'owner' | 'mode' | undefined {
  if (!found.isDirectory()) return 'type'
  if (found.uid !== us) return 'owner'
  return isOpenToOthers(found) ? 'mode' : undefined
}

/** True if users other than the owner have any access to a file or directory. */
export function isOpenToOthers({ mode }: Stats): boolean {
  return (mode & GROUP_AND_OTHERS) !== 0
}
