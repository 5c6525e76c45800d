import { invalidEntry } from '../../../core/archive/archive-entry.ts'
import { ArchiveListing, type ExtractionPlan } from '../../../core/archive/archive-policy.ts'
import { decodeTarget } from '../../../core/archive/entry-names.ts'
import type { ReadWindow } from '../read-window.ts'
import type { OpenZip } from './open-zip.ts'
import { readZipDirectory } from './zip-directory.ts'
import type { LocatedZipEntry, ZipEntries } from './zip-entries.ts'
import { isSmall, readSmallEntry } from './zip-entry-data.ts'
import { locateEntries } from './zip-local-headers.ts'

/** The plan of a ZIP's extraction, and the entries that it refers to. */
export interface PlannedZip {
  readonly plan: ExtractionPlan
  /** The entries, all located, by the numbers that the plan uses. */
  readonly entries: ZipEntries
}

/**
 * Reads a ZIP's whole listing, including local headers and symlink targets, and plans its extraction. Writes nothing.
 * Checks limits and names while it reads, before it unpacks anything.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`, and the signal's
 * reason once the slice's signal is aborted.
 */
export async function planZip(zip: OpenZip): Promise<PlannedZip> {
  const { window, slice } = zip
  const listing = new ArchiveListing(zip.rules)
  const directory = await readZipDirectory(zip, listing)
  const { entries } = directory
  await locateEntries(zip, directory)
  // In the order of their data: in any other order, each target could cost a read of a whole window.
  const symlinks = directory.symlinks.toSorted((a, b) => entries.dataOffsetAt(a) - entries.dataOffsetAt(b))
  await slice.forEach(symlinks, number => listing.setTarget(number, readTarget(window, entries.locatedAt(number))))
  return { plan: await slice.run(listing.plan()), entries }
}

function readTarget(window: ReadWindow, entry: LocatedZipEntry): string {
  if (!isSmall(entry)) throw invalidEntry(entry.name, 'is a symlink with more packed bytes than a target can have')
  return decodeTarget(readSmallEntry(window, entry), entry.name)
}
