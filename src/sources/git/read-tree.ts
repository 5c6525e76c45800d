import { writeSync } from 'node:fs'
import { invalidEntry } from '../../core/archive/archive-entry.ts'
import type { ExtractionLimits } from '../../core/archive/archive-limits.ts'
import { decodeTarget } from '../../core/archive/entry-names.ts'
import type { PlannedFile } from '../../core/archive/planned-files.ts'
import { ArtifactError } from '../../core/errors.ts'
import { PieceReader } from '../../install/archive/piece-reader.ts'
import { TreeWriter } from '../../install/archive/tree-writer.ts'
import { makeOpenDirectorySync } from '../../install/files/durable-files.ts'
import { openPrivateFileSync } from '../../install/files/private-file.ts'
import { TimeSlice } from '../../install/files/time-slice.ts'
import type { ExtractedFile, ExtractedTree } from '../../install/files/trees/extracted-tree.ts'
import type { HostGit } from './host-git.ts'
import { type GitEntry, listTree } from './list-tree.ts'

/** A file up to this size is written in one go. */
const SMALL_FILE_BYTES = 1024 * 1024

export interface TreeReading {
  readonly git: HostGit
  /** A private folder for unnamed files. Each lists the ids of the blobs that git prints. */
  readonly folder: string
  /** The directory to create for the tree. */
  readonly target: string
  readonly limits: ExtractionLimits
  readonly signal: AbortSignal
}

/**
 * Writes a tree of the repository to `target`, with exactly the bytes that were committed, and with the modes, limits
 * and order of an extraction. Checks the whole listing and the free space first. Throws ArchiveError `empty_artifact`
 * or `invalid_archive`, DeploymentError `disk_full`, `host_not_writable` or `step_failed`, and the signal's reason.
 * Also throws as `listTree` and `HostGit` do.
 */
export async function readTree(reading: TreeReading, tree: string): Promise<ExtractedTree> {
  const { git, target, limits, signal } = reading
  const slice = new TimeSlice(signal)
  const rules = { ...limits, platform: process.platform, shape: 'as packed' as const }
  const { listing, entries } = await listTree(git, tree, { rules, slice })
  const symlinks = entries.flatMap((entry, number) => (entry.type === 'symlink' ? [{ ...entry, number }] : []))
  await readBlobs(reading, symlinks, async ({ number, name }, blob) => {
    listing.setTarget(number, decodeTarget(await blob.whole(), name))
  })
  const plan = await slice.run(listing.plan())
  makeOpenDirectorySync(target)
  const writer = new TreeWriter(target, slice)
  return await writer.writeTree(plan, async files => {
    const blobs = Array.from(files, file => ({ ...(entries[file.entry] as GitEntry), file }))
    return await writeFiles(reading, { writer, slice }, blobs)
  })
}

async function writeFiles(
  reading: TreeReading,
  { writer, slice }: { writer: TreeWriter; slice: TimeSlice },
  files: readonly PlannedBlob[],
): Promise<ExtractedFile[]> {
  const written: ExtractedFile[] = []
  await readBlobs(reading, files, async ({ file, size }, blob) => {
    const isSmall = size <= SMALL_FILE_BYTES
    written.push(isSmall ? writer.writeFile(file, await blob.whole()) : await writer.writeFileFrom(file, blob.pieces()))
    if (slice.isOver()) await slice.giveBack()
  })
  return written
}

interface PlannedBlob extends GitEntry {
  readonly file: PlannedFile
}

interface Blob {
  whole(): Promise<Buffer>
  pieces(): AsyncIterable<Buffer>
}

/**
 * Passes the bytes of each entry to `use`, in order. Each blob must be read before the next one is requested. Throws
 * ArtifactError `bad_response` if git ends before it has printed every blob, and ArchiveError `invalid_archive` if git
 * prints anything but the listed blob.
 */
async function readBlobs<Entry extends Pick<GitEntry, 'name' | 'oid' | 'size'>>(
  { git, folder }: TreeReading,
  entries: readonly Entry[],
  use: (entry: Entry, blob: Blob) => Promise<void>,
): Promise<void> {
  if (entries.length === 0) return
  const list = openPrivateFileSync(folder)
  try {
    // A write at a position does not move the file's offset, so the child reads the same open file from the start.
    writeSync(list.fd, entries.map(({ oid }) => `${oid}\n`).join(''), 0)
    await git.read({ args: ['cat-file', '--batch', '--buffer'], input: list.fd }, async stdout => {
      const reader = new PieceReader(stdout, unreadable)
      let at = 0
      for (const entry of entries) {
        const { oid, size } = entry
        const header = `${oid} blob ${size}\n`
        if ((await reader.read(at, header.length)).toString('latin1') !== header)
          throw invalidEntry(entry.name, 'is not what the repository lists')
        const start = at + header.length
        await use(entry, { whole: () => reader.read(start, size), pieces: () => reader.stream(start, size) })
        at = start + size + 1
      }
      await reader.read(at - 1, 1)
    })
  } finally {
    list.close()
  }
}

function unreadable(): ArtifactError {
  return new ArtifactError(
    'bad_response',
    'git ended before it had printed every file of the commit: nothing was installed. Run again; if that does not help, ask the publisher.',
  )
}
