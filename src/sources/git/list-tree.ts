import { type ArchiveEntry, unsafeEntry } from '../../core/archive/archive-entry.ts'
import { verifyEntryCount } from '../../core/archive/archive-limits.ts'
import type { ExtractionRules } from '../../core/archive/archive-policy.ts'
import { ArchiveListing } from '../../core/archive/archive-policy.ts'
import { decodeEntryName } from '../../core/archive/entry-names.ts'
import { MAX_PATH_BYTES } from '../../core/limits.ts'
import type { TimeSlice } from '../../install/files/time-slice.ts'
import type { HostGit } from './host-git.ts'

/** A file or symlink of a commit, and the id of its bytes. */
export interface GitEntry extends ArchiveEntry {
  readonly oid: string
}

export interface GitListing {
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
 * attributes have no effect. Throws ArchiveError `unsafe_archive` (also for a submodule) or `archive_too_large`. Also
 * throws as `HostGit.read` does.
 */
export async function listTree(git: HostGit, tree: string, { rules, slice }: Listed): Promise<GitListing> {
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
