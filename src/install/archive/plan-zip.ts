import { invalidEntry } from '../../core/archive/archive-entry.ts'
import { type ExtractionLimits, verifyDeclaredSizes } from '../../core/archive/archive-limits.ts'
import { type ExtractionPlan, planExtraction } from '../../core/archive/archive-policy.ts'
import { decodeEntryText } from '../../core/archive/entry-names.ts'
import type { VerifiedArtifact } from '../../core/trust/signature.ts'
import type { TimeSlice } from '../files/time-slice.ts'
import type { ReadWindow } from './read-window.ts'
import { readZipDirectory } from './zip-directory.ts'
import { isSmall, readSmallEntry } from './zip-entry-data.ts'
import { type LocatedZipEntry, locateEntries } from './zip-local-headers.ts'

/**
 * Reads a ZIP's whole listing, local headers and symlinks' targets included, and plans its extraction; writes nothing.
 * Declared sizes are judged before anything is unpacked. The files are in the order of their data.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`.
 */
export async function planZip(
  artifact: VerifiedArtifact,
  window: ReadWindow,
  limits: ExtractionLimits,
  platform: NodeJS.Platform,
  slice: TimeSlice,
): Promise<ExtractionPlan<LocatedZipEntry>> {
  const directory = await readZipDirectory(window, artifact.size, limits, slice)
  verifyDeclaredSizes(directory.entries, limits)
  const located = await locateEntries(window, directory, slice)
  const complete = await readTargets(window, located, slice)
  await slice.giveBack()
  return planExtraction(complete, { ...limits, platform, shape: 'flattened' })
}

async function readTargets(
  window: ReadWindow,
  entries: readonly LocatedZipEntry[],
  slice: TimeSlice,
): Promise<LocatedZipEntry[]> {
  const complete: LocatedZipEntry[] = []
  for (const entry of entries) {
    complete.push(entry.type === 'symlink' ? { ...entry, target: readTarget(window, entry) } : entry)
    if (slice.isOver()) await slice.giveBack()
  }
  return complete
}

function readTarget(window: ReadWindow, entry: LocatedZipEntry): string {
  if (!isSmall(entry)) throw invalidEntry(entry.name, 'is a symlink with more packed bytes than a target can have')
  return decodeEntryText(readSmallEntry(window, entry), 'utf-8')
}
