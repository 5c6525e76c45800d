import type { ExtractionLimits } from '../../core/archive/archive-limits.ts'
import { type ExtractionPlan, type PlannedFile, planExtraction } from '../../core/archive/archive-policy.ts'
import { isRoot, type TarEntry, TarListing } from '../../core/archive/tar-listing.ts'
import { inTreeOrder } from '../../core/trust/tree-digest.ts'
import type { ExtractedFile, ExtractedTree } from '../files/extracted-tree.ts'
import { eachInSlices, inSlices } from '../files/in-slices.ts'
import { requireSpace } from '../files/space.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { PieceReader } from './piece-reader.ts'
import { makeDirectory, makeSymlink, writeFile, writeFileFrom } from './tree-writer.ts'
import type { OpenedArtifact } from './unseal.ts'
import { keepYoungGenerationSmall } from './young-generation.ts'
import { unpackZstd } from './zstd-stream.ts'

/** Up to here a file is written in one go. */
const SMALL_FILE_BYTES = 1024 * 1024

/** The parties of one extraction. */
interface Extraction {
  readonly target: string
  readonly slice: TimeSlice
  /** The tar from its beginning, each time it is asked for. */
  readonly unpack: () => AsyncIterable<Buffer>
}

/**
 * Extracts an opened artifact's tar into `target`, an existing, empty, private directory, everything where the tar has it; a leading
 * `./` aside. Unpacks twice: first to judge the whole listing, and to find room for it, then to write. Both readings are of the same bytes in
 * memory, and what is written lies where the listing found it. Files become 0644 or 0755 and directories 0755, whatever the umask;
 * symlinks come last. Works in slices between which signals are heard. What was written stays when it throws: the caller removes `target`.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`, DeploymentError
 * `disk_full` or `host_not_writable`, and the signal's reason once it is aborted.
 */
export async function extractTar(
  opened: OpenedArtifact,
  target: string,
  limits: ExtractionLimits,
  signal?: AbortSignal,
): Promise<ExtractedTree> {
  signal?.throwIfAborted()
  keepYoungGenerationSmall()
  const slice = new TimeSlice(signal)
  const extraction = { target, slice, unpack: () => inSlices(unpackZstd(opened, limits), slice) }
  const members = (await listMembers(extraction, limits)).filter(entry => !isRoot(entry))
  const plan = planExtraction(members, { ...limits, platform: process.platform, shape: 'as packed' })
  requireSpace(target, plan.bytes)
  const files = await writeTree(extraction, plan)
  const { directories, symlinks, bytes, flattened } = plan
  return { files: inTreeOrder(files), symlinks, directories, bytes, flattened }
}

async function listMembers({ unpack }: Extraction, limits: ExtractionLimits): Promise<TarEntry[]> {
  const listing = new TarListing(limits)
  for await (const piece of unpack()) listing.add(piece)
  return listing.finish()
}

async function writeTree(extraction: Extraction, plan: ExtractionPlan<TarEntry>): Promise<ExtractedFile[]> {
  const { target, slice } = extraction
  await eachInSlices(plan.directories, slice, path => makeDirectory(target, path))
  const files = await writeFiles(extraction, plan.files)
  await eachInSlices(plan.symlinks, slice, symlink => makeSymlink(target, symlink))
  return files
}

async function writeFiles({ target, slice, unpack }: Extraction, planned: readonly PlannedFile<TarEntry>[]) {
  const reader = new PieceReader(unpack())
  const files: ExtractedFile[] = []
  try {
    for (const file of planned) {
      files.push(await writeMember(target, file, reader))
      if (slice.isOver()) await slice.giveBack()
    }
  } finally {
    await reader.close()
  }
  return files
}

async function writeMember(target: string, file: PlannedFile<TarEntry>, reader: PieceReader): Promise<ExtractedFile> {
  const { dataOffset, size, sha256 } = file.entry
  if (size > SMALL_FILE_BYTES) return writeFileFrom(target, file, reader.stream(dataOffset, size))
  return writeFile(target, file, await reader.read(dataOffset, size), sha256)
}
