import { invalidEntry } from '../../../core/archive/archive-entry.ts'
import { ArchiveListing, type ExtractionPlan } from '../../../core/archive/archive-policy.ts'
import { decodeEntryText } from '../../../core/archive/entry-names.ts'
import type { ReadWindow } from '../read-window.ts'
import type { OpenZip } from './open-zip.ts'
import { readZipDirectory, type ZipEntry } from './zip-directory.ts'
import { isSmall, readSmallEntry } from './zip-entry-data.ts'
import { type LocatedZipEntry, locateEntries } from './zip-local-headers.ts'

/**
 * Reads a ZIP's whole listing, local headers and symlinks' targets included, and plans its extraction; writes nothing.
 * Limits and names are checked while it is read, before anything is unpacked.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`.
 */
export async function planZip(zip: OpenZip): Promise<ExtractionPlan<LocatedZipEntry>> {
  const listing = new ArchiveListing<ZipEntry>(zip.rules)
  const directory = await readZipDirectory(zip, listing)
  const located = await locateEntries(zip, directory)
  await readTargets(zip, located)
  // All of the listing's entries have been located by now.
  return (await zip.slice.run(listing.plan())) as ExtractionPlan<LocatedZipEntry>
}

async function readTargets({ window, slice }: OpenZip, entries: readonly LocatedZipEntry[]): Promise<void> {
  await slice.forEach(entries, entry => {
    if (entry.type === 'symlink') Object.assign(entry, { target: readTarget(window, entry) })
  })
}

function readTarget(window: ReadWindow, entry: LocatedZipEntry): string {
  if (!isSmall(entry)) throw invalidEntry(entry.name, 'is a symlink with more packed bytes than a target can have')
  return decodeEntryText(readSmallEntry(window, entry), 'utf-8')
}
