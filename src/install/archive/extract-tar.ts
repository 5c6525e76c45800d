import {
  ArchiveListing,
  type ExtractionPlan,
  type ExtractionRules,
  type PlannedFile,
} from '../../core/archive/archive-policy.ts'
import { isRoot, type TarEntry, TarListing } from '../../core/archive/tar-listing.ts'
import type { ExtractedFile, ExtractedTree } from '../files/extracted-tree.ts'
import { TimeSlice } from '../files/time-slice.ts'
import type { Extraction } from './extraction.ts'
import { PieceReader } from './piece-reader.ts'
import { TreeWriter } from './tree-writer.ts'
import type { OpenedArtifact } from './unseal.ts'
import { unpackZstd } from './zstd-stream.ts'

/** Up to here a file is written in one go. */
const SMALL_FILE_BYTES = 1024 * 1024

/** So many bytes of a tar can be headers all of them, and are listed in a few milliseconds. */
const LISTED_BYTES = 128 * 1024

/** Which part of a tar to extract. */
export interface TarExtractionRequest extends Extraction {
  /** The files to write, and the directories that contain them; undefined for everything. */
  readonly only?: ReadonlySet<string>
}

/** A tar, and the writer of its content. */
interface TarExtraction {
  readonly writer: TreeWriter
  readonly slice: TimeSlice
  /** The tar's bytes from the beginning, each time it is called. */
  readonly unpack: () => AsyncIterable<Buffer>
}

/**
 * Extracts an opened artifact's tar, every path as the tar has it, without a leading `./`. Unpacks twice: first to
 * check the whole listing, and to find room for it, then to write. Both readings are of the same bytes in memory, and
 * what is written is what the listing found there. Files become 0644 or 0755 and directories 0755, whatever the
 * umask; symlinks come last. With `only`, checks the same and writes less. Works in slices between which signals are
 * handled.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`, DeploymentError
 * `disk_full` or `host_not_writable`, and the signal's reason once it is aborted.
 */
export async function extractTar(
  opened: OpenedArtifact,
  { target, limits, signal, only }: TarExtractionRequest,
): Promise<ExtractedTree> {
  signal?.throwIfAborted()
  const slice = new TimeSlice(signal)
  const writer = new TreeWriter(target, slice)
  const extraction = { writer, slice, unpack: () => slice.pace(unpackZstd(opened, limits)) }
  const listing = await readListing(extraction, { ...limits, platform: process.platform, shape: 'as packed' })
  const plan = await slice.run(listing.plan())
  return await writer.writeTree(only === undefined ? plan : reduced(plan, only), files => writeFiles(extraction, files))
}

function reduced(plan: ExtractionPlan<TarEntry>, only: ReadonlySet<string>): ExtractionPlan<TarEntry> {
  const files = plan.files.filter(({ path }) => only.has(path))
  const directories = plan.directories.filter(folder => files.some(({ path }) => path.startsWith(`${folder}/`)))
  return { ...plan, files, directories, symlinks: [], bytes: files.reduce((sum, { entry }) => sum + entry.size, 0) }
}

async function readListing(
  { slice, unpack }: TarExtraction,
  rules: ExtractionRules,
): Promise<ArchiveListing<TarEntry>> {
  const tar = new TarListing(rules)
  const listing = new ArchiveListing<TarEntry>(rules)
  for await (const piece of unpack()) {
    for (let at = 0; at < piece.length; at += LISTED_BYTES) {
      tar.add(piece.subarray(at, at + LISTED_BYTES))
      await slice.forEach(tar.take(), entry => {
        if (!isRoot(entry)) listing.add(entry)
      })
    }
  }
  tar.finish()
  return listing
}

async function writeFiles(
  { writer, slice, unpack }: TarExtraction,
  planned: readonly PlannedFile<TarEntry>[],
): Promise<ExtractedFile[]> {
  const reader = new PieceReader(unpack())
  const files: ExtractedFile[] = []
  try {
    for (const file of planned.toSorted((a, b) => a.entry.dataOffset - b.entry.dataOffset)) {
      const { dataOffset, size, sha256 } = file.entry
      const written =
        size > SMALL_FILE_BYTES
          ? await writer.writeFileFrom(file, reader.stream(dataOffset, size))
          : writer.writeFile(file, await reader.read(dataOffset, size), sha256)
      files.push(written)
      if (slice.isOver()) await slice.giveBack()
    }
  } finally {
    await reader.close()
  }
  return files
}
