import type { ArchiveEntry } from '../../../src/core/archive/planned-tree.ts'
import {
  ArchiveListing,
  type ExtractionPlan,
  type ExtractionRules,
  type PlannedSymlink,
} from '../../../src/core/archive/policy.ts'

const AS_PACKED = { maxExtractedBytes: 1e9, maxEntries: 1000, platform: 'linux', shape: 'as packed' } as const

/** Plans a whole listing without a pause. */
export function planListing(entries: readonly ArchiveEntry[], rules: ExtractionRules): ExtractionPlan {
  const listing = new ArchiveListing(rules)
  for (const entry of entries) listing.add(entry)
  return planned(listing)
}

export function planned(listing: ArchiveListing): ExtractionPlan {
  const steps = listing.plan()
  let step = steps.next()
  while (step.done !== true) step = steps.next()
  return step.value
}

export function listedEntry(name: string, more: Partial<ArchiveEntry> = {}): ArchiveEntry {
  const type = name.endsWith('/') ? 'directory' : 'file'
  return { name, type, size: 0, packedSize: 0, executable: false, target: null, ...more }
}

export function listedSymlink(name: string, target: string): ArchiveEntry {
  return listedEntry(name, { type: 'symlink', size: target.length, packedSize: target.length, target })
}

/** Plans the symlinks of a tree with these files, as for an archive. */
export function plannedSymlinks(
  files: readonly string[],
  links: Readonly<Record<string, string>>,
): readonly PlannedSymlink[] {
  if (Object.keys(links).length === 0) return []
  const entries = [
    ...files.map(name => listedEntry(name)),
    ...Object.entries(links).map(link => listedSymlink(...link)),
  ]
  return planListing(entries, AS_PACKED).symlinks
}
