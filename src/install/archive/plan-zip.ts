import { invalidEntry } from '../../core/archive/archive-entry.ts'
import { verifyDeclaredSizes } from '../../core/archive/archive-limits.ts'
import { type ExtractionPlan, planExtraction } from '../../core/archive/archive-policy.ts'
import { decodeEntryText } from '../../core/archive/entry-names.ts'
import type { OpenZip } from './open-zip.ts'
import type { ReadWindow } from './read-window.ts'
import { readZipDirectory } from './zip-directory.ts'
import { isSmall, readSmallEntry } from './zip-entry-data.ts'
import { type LocatedZipEntry, locateEntries } from './zip-local-headers.ts'

/**
 * Reads a ZIP's whole listing, local headers and symlinks' targets included, and plans its extraction; writes nothing.
 * Declared sizes are checked before anything is unpacked. The files are in the order of their data.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`.
 */
export async function planZip(zip: OpenZip): Promise<ExtractionPlan<LocatedZipEntry>> {
  const directory = await readZipDirectory(zip)
  verifyDeclaredSizes(directory.entries, zip.rules)
  const located = await locateEntries(zip, directory)
  const complete = await readTargets(zip, located)
  await zip.slice.giveBack()
  return planExtraction(complete, zip.rules)
}

async function readTargets(
  { window, slice }: OpenZip,
  entries: readonly LocatedZipEntry[],
): Promise<LocatedZipEntry[]> {
  const complete: LocatedZipEntry[] = []
  await slice.forEach(entries, entry => {
    complete.push(entry.type === 'symlink' ? { ...entry, target: readTarget(window, entry) } : entry)
  })
  return complete
}

function readTarget(window: ReadWindow, entry: LocatedZipEntry): string {
  if (!isSmall(entry)) throw invalidEntry(entry.name, 'is a symlink with more packed bytes than a target can have')
  return decodeEntryText(readSmallEntry(window, entry), 'utf-8')
}
