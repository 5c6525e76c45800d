import { writeSync } from 'node:fs'
import { type ArchiveEntry, invalidEntry, unsafeEntry } from '../core/archive/planned-tree.ts'
import {
  ArchiveListing,
  decodeEntryName,
  decodeTarget,
  type ExtractionLimits,
  type ExtractionRules,
  type PlannedFile,
  verifyEntryCount,
} from '../core/archive/policy.ts'
import { ArtifactError } from '../core/errors.ts'
import { MAX_PATH_BYTES } from '../core/identifiers.ts'
import { PieceReader } from '../install/archive/pieces.ts'
import { TreeWriter } from '../install/archive/writer.ts'
import { makeOpenDirectorySync } from '../install/files/durable.ts'
import type { ExtractedFile, ExtractedTree } from '../install/files/extracted-tree.ts'
import { openPrivateFileSync } from '../install/files/open.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import type { HostGit } from './host-git.ts'

/** A file up to this size is written in one go. */
const SMALL_FILE_BYTES = 1024 * 1024

interface TreeReading {
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
    const blobs = files.map(file => ({ ...(entries[file.entry] as GitEntry), file }))
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

/** A file or symlink of a commit, and the id of its bytes. */
interface GitEntry extends ArchiveEntry {
  readonly oid: string
}

interface GitListing {
  /** Without the targets of symlinks, which are still to be read. */
  readonly listing: ArchiveListing
  /** Indexed by the listing's entry numbers. */
  readonly entries: readonly GitEntry[]
}

/** The maximum size of a record: the mode, type, id and size before the path take less than 256 bytes. */
const MAX_RECORD_BYTES = MAX_PATH_BYTES + 256
const RECORD = /^(\d{6}) (\w+) ([0-9a-f]{40,64}) +(\d+|-)$/

/**
 * Lists a tree by an archive's rules, entry by entry as git prints them. Nothing is checked out, so the repository's
 * attributes have no effect. Throws ArchiveError `unsafe_archive` (also for a submodule) or `archive_too_large`.
 */
async function listTree(git: HostGit, tree: string, { rules, slice }: Listed): Promise<GitListing> {
  const listing = new ArchiveListing(rules)
  const entries: GitEntry[] = []
  const args = ['ls-tree', '-r', '-t', '-z', '-l', '--full-tree', '--end-of-options', tree] as const
  await git.read({ args }, async stdout => {
    let records = 0
    for await (const record of recordsOf(stdout)) {
      // Trees count too: git lists each of them, even an empty one, and a hostile repository could keep git busy for
      // years.
      verifyEntryCount(++records, rules)
      const entry = parseRecord(record)
      if (entry.type === 'directory') continue
      listing.add(entry)
      entries.push(entry)
      if (slice.isOver()) await slice.giveBack()
    }
  })
  return { listing, entries }
}

interface Listed {
  readonly rules: ExtractionRules
  readonly slice: TimeSlice
}

async function* recordsOf(stdout: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0)
  for await (const piece of stdout) {
    let text = rest.length === 0 ? piece : Buffer.concat([rest, piece])
    for (let end = text.indexOf(0); end !== -1; end = text.indexOf(0)) {
      yield text.subarray(0, end)
      text = text.subarray(end + 1)
    }
    if (text.length > MAX_RECORD_BYTES)
      throw unsafeEntry(text.subarray(0, 200).toString('latin1'), `has a path of more than ${MAX_PATH_BYTES} bytes`)
    rest = Buffer.from(text)
  }
}

function parseRecord(record: Buffer): GitEntry {
  const tab = record.indexOf('\t')
  const [, mode = '', type, oid = '', size] = RECORD.exec(record.subarray(0, tab).toString('latin1')) ?? []
  const name = decodeEntryName(record.subarray(tab + 1), 'utf-8')
  if (type === 'commit') throw unsafeEntry(name, 'is a submodule, whose files the repository does not contain')
  if (type === 'tree')
    return { name, type: 'directory', size: 0, packedSize: null, executable: false, target: null, oid }
  const kind = mode === '120000' ? 'symlink' : mode.startsWith('100') ? 'file' : 'unknown type'
  const executable = mode === '100755'
  return { name, type: kind, size: Number(size), packedSize: null, executable, target: null, oid }
}
