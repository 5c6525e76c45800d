import { HubError } from '../errors.ts'

/** The most entries that hosts unpack by default (docs/contracts.md, "Limits, timeouts, retries"). */
export const MAX_ENTRIES = 100_000
export const MAX_EXTRACTED_BYTES = 2 * 1024 * 1024 * 1024
export const MAX_ARCHIVE_BYTES = 512 * 1024 * 1024
export const MAX_PATH_BYTES = 4096
export const MAX_NAME_BYTES = 255
/** The largest number of levels in a path, or in a symlink's target. */
export const MAX_LEVELS = 64

/** The hosts' limit for all names and symlink targets together: 256 bytes for each possible entry, plus 1 MiB. */
const MAX_NAME_BYTES_TOGETHER = 256 * MAX_ENTRIES + 1024 * 1024

/** An entry of a ZIP or tar. `name` is unchanged: a directory's name may end with a slash. */
export interface ArchiveEntry {
  readonly name: string
  readonly type: 'file' | 'directory' | 'symlink' | 'other'
  /** The target of a symlink; undefined if the target is longer than a path may be. */
  readonly target?: string
}

/** Collects the entries of an archive while it is read. */
export class EntryList {
  readonly entries: ArchiveEntry[] = []
  #nameBytes = 0

  /** Throws HubError 400 for more entries or longer names than hosts unpack, before they fill the memory. */
  add(entry: ArchiveEntry): void {
    this.#nameBytes += Buffer.byteLength(entry.name) + Buffer.byteLength(entry.target ?? '')
    if (this.entries.length >= MAX_ENTRIES) throw tooMuch(`has more than ${MAX_ENTRIES} entries`)
    if (this.#nameBytes > MAX_NAME_BYTES_TOGETHER)
      throw tooMuch(`has more than ${MAX_NAME_BYTES_TOGETHER} bytes of names and symlink targets`)
    this.entries.push(entry)
  }
}

/** The refusal of an archive for one of its entries. */
export function unsafe(name: string, problem: string): HubError {
  return new HubError(
    400,
    `Hosts refuse this archive: ${JSON.stringify(name.slice(0, 200))} ${problem}. Correct the entry and pack the archive again.`,
  )
}

/** The refusal of an archive that is larger than hosts unpack. */
export function tooMuch(excess: string): HubError {
  return new HubError(400, `The archive ${excess}, so hosts refuse it by default: remove some files.`)
}
