import type { PlannedFiles } from '../../../core/archive/planned-files.ts'
import type { VerifiedArtifact } from '../../../core/trust/signature.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import type { ExtractedTree } from '../../files/trees/extracted-tree.ts'
import { FileList } from '../../files/trees/file-list.ts'
import type { Extraction } from '../extraction.ts'
import { ReadWindow } from '../read-window.ts'
import { TreeWriter } from '../tree-writer.ts'
import { canInflateTogether } from './inflate-together.ts'
import type { OpenZip } from './open-zip.ts'
import { type PlannedZip, planZip } from './plan-zip.ts'
import type { ZipPacking } from './zip-entries.ts'
import { isSmall, readLargeEntry, readSmallEntry } from './zip-entry-data.ts'
import { readInBatches } from './zip-small-files.ts'

/** A ZIP, and the writer of its content. */
interface ZipExtraction extends OpenZip {
  readonly writer: TreeWriter
}

/**
 * Extracts a ZIP, leaving out a single top-level directory (contract 4.3, rule 5). Checks the whole listing and the
 * free space before it writes the first byte. Verifies that each file has its declared size and CRC. Files become 0644
 * or 0755 and directories 0755, whatever the umask; symlinks are created last. Works in slices, between which signals
 * are handled.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`, DeploymentError
 * `disk_full`, `host_not_writable` or `step_failed`, and the signal's reason once the signal is aborted.
 */
export async function extractZip(
  artifact: VerifiedArtifact,
  { target, limits, signal }: Extraction,
): Promise<ExtractedTree<FileList>> {
  signal?.throwIfAborted()
  const slice = new TimeSlice(signal)
  const writer = new TreeWriter(target, slice)
  const rules = { ...limits, platform: process.platform, shape: 'flattened' as const }
  const extraction = { window: new ReadWindow(artifact), rules, slice, writer }
  const planned = await planZip(extraction)
  return await writer.writeTree(planned.plan, async () => await writeFiles(extraction, planned))
}

async function writeFiles({ window, slice, writer }: ZipExtraction, { plan, entries }: PlannedZip): Promise<FileList> {
  const inDataOrder = plan.files.sortedBy(entry => entries.dataOffsetAt(entry))
  const toRead = (how: HowToRead): PlannedFiles =>
    inDataOrder.filterByEntry(entry => howToRead(entries.packingAt(entry)) === how)
  const files = new FileList(plan.files.length)
  for await (const batch of readInBatches({ window, entries }, toRead('batched'))) {
    await slice.forEach(batch, ({ file, bytes }) => files.set(file.place, writer.writeFile(file, bytes)))
  }
  await slice.forEach(toRead('single'), file => {
    const bytes = readSmallEntry(window, entries.locatedAt(file.entry))
    files.set(file.place, writer.writeFile(file, bytes))
  })
  for (const file of toRead('large')) {
    const pieces = readLargeEntry(window, entries.locatedAt(file.entry))
    files.set(file.place, await writer.writeFileFrom(file, slice.pace(pieces)))
  }
  return files
}

type HowToRead = 'batched' | 'single' | 'large'

function howToRead(packing: ZipPacking): HowToRead {
  if (!isSmall(packing)) return 'large'
  return canInflateTogether(packing) ? 'batched' : 'single'
}
