import { createHash, hash } from 'node:crypto'
import {
  ArchiveListing,
  type ExtractionLimits,
  type ExtractionPlan,
  type ExtractionRules,
  fileMode,
} from '../../core/archive/policy.ts'
import { isRoot, type TarEntry, type TarPart, TarReader } from '../../core/archive/tar.ts'
import type { ExtractedFile, ExtractedTree } from '../files/extracted-tree.ts'
import { hasSpaceForAny, OWN_INODES, requireSpace } from '../files/space.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { declaredBytes, type OpenedArtifact, unpackZstd } from './sealed.ts'
import { type Extraction, spaceFor, TreeWriter } from './writer.ts'

/**
 * An archive may have one file or directory written for each KiB of its own size, not counting the first MiB, before
 * its whole listing has passed. So a refused archive costs no more than its size is worth. Reading a small archive
 * twice takes milliseconds; reading a large one twice would take a third of its deployment's time.
 */
const BYTES_PER_EARLY_ENTRY = 1024
const BYTES_WITHOUT_EARLY_ENTRY = 1024 * 1024

/** A request to list a tar, and to extract it afterwards. */
export interface TarRequest extends Extraction {
  /** The paths of files to write at once, with their directories. */
  readonly first?: ReadonlySet<string> | undefined
  /** True if the files in `first` may turn out to be enough, so that no others should be written at once. */
  readonly onlyFirst?: boolean | undefined
}

/** A tar whose whole listing has passed. */
export interface ListedTar {
  /** With the digests of all files, even of those that have not been written yet. */
  readonly tree: ExtractedTree
  /**
   * Writes everything that has not been written yet. Throws DeploymentError `disk_full`, `host_not_writable` or
   * `step_failed`, and ArchiveError `unsafe_archive` if this file system cannot have a path of the archive.
   */
  write(): Promise<ExtractedTree>
}

/**
 * Reads an opened artifact's tar, and computes the digest of each file. Keeps the paths of the tar, but drops a leading
 * `./`. Writes the files in `first`, and of a large archive as many others as the archive's size allows, as soon as the
 * path of each has been checked. The caller must not use anything in `target` before this function returns: only then
 * has the whole listing passed. Never writes through a symlink: it writes only into `target` and directories that it
 * created, creates files exclusively, and creates symlinks last. Files become 0644 or 0755 and directories 0755,
 * whatever the umask. Works in slices, between which signals are handled.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`. Throws
 * DeploymentError `disk_full`, `host_not_writable` or `step_failed` only if the archive itself is sound. Throws the
 * signal's reason once the signal is aborted.
 */
export async function listTar(opened: OpenedArtifact, request: TarRequest): Promise<ListedTar> {
  const { target, limits, signal, first } = request
  signal?.throwIfAborted()
  const slice = new TimeSlice(signal)
  const rules = { ...limits, platform: process.platform, shape: 'as packed' as const }
  const source: TarSource = { rules, slice, unpack: () => unpackZstd(opened, limits) }
  const writer = new TreeWriter(target, slice, request.makeFolder)
  const files = new PassingFiles(writer)
  const most = earlyEntries(opened, request)
  const plan = await readTar(source, file => {
    if (first?.has(file.path)) requireSpace(target, { sizes: [file.size], inodes: OWN_INODES })
    return first?.has(file.path) || files.entries < most ? files.write(file) : files.digest(file)
  })
  return {
    tree: treeOf(plan, files),
    async write() {
      if (most === 0) requireSpace(target, spaceFor(plan))
      const isLeft = plan.files.some(({ path }) => !files.isWritten(path))
      if (isLeft) await readAgain(source, file => (files.isWritten(file.path) ? undefined : files.write(file)))
      await slice.forEach(plan.directories, path => files.makeDirectory(path))
      await slice.forEach(plan.symlinks, symlink => writer.makeSymlink(symlink))
      return treeOf(plan, files)
    },
  }
}

/**
 * Returns how many files and directories may be written before the whole listing has passed: none unless there is room
 * for the largest tree that the limits and the declared size allow.
 */
function earlyEntries(opened: OpenedArtifact, { target, limits, onlyFirst }: TarRequest): number {
  const bytes = Math.min(declaredBytes(opened) ?? Number.POSITIVE_INFINITY, limits.maxExtractedBytes)
  if (onlyFirst || !hasSpaceForAny(target, { bytes, entries: limits.maxEntries })) return 0
  const counted = Math.max(0, opened.zstd.length - BYTES_WITHOUT_EARLY_ENTRY)
  return Math.floor(counted / BYTES_PER_EARLY_ENTRY)
}

function treeOf(plan: ExtractionPlan, { found }: PassingFiles): ExtractedTree {
  const files = plan.files.map(({ path }) => found.get(path) as ExtractedFile)
  return { ...plan, files }
}

/** The files of a tar that is being read. Creates each directory once, before the first file in it. */
class PassingFiles {
  /** By path. A file that has been written has a stamp. */
  readonly found = new Map<string, ExtractedFile>()
  readonly #tree: TreeWriter
  readonly #written = new Set<string>()
  readonly #directories = new Set<string>()

  constructor(tree: TreeWriter) {
    this.#tree = tree
  }

  /** The number of files and directories that have been written. */
  get entries(): number {
    return this.#written.size + this.#directories.size
  }

  isWritten(path: string): boolean {
    return this.#written.has(path)
  }

  /** Writes a file. Returns undefined if the file has been written, otherwise a promise that resolves when it has. */
  write(file: PassingFile): Promise<void> | undefined {
    this.#makeDirectoryOf(file.path)
    if (file.bytes === undefined) return this.#writePieces(file)
    this.#note(this.#tree.writeFile(file, file.bytes))
    return undefined
  }

  /** Computes the digest of a file, and returns as `write` does. */
  digest(file: PassingFile): Promise<void> | undefined {
    if (file.bytes === undefined) return this.#digestPieces(file)
    this.#noteDigest(file, hash('sha256', file.bytes, 'hex'))
    return undefined
  }

  makeDirectory(path: string): void {
    if (this.#directories.has(path)) return
    this.#makeDirectoryOf(path)
    this.#tree.makeDirectory(path)
    this.#directories.add(path)
  }

  #makeDirectoryOf(path: string): void {
    const end = path.lastIndexOf('/')
    if (end !== -1) this.makeDirectory(path.slice(0, end))
  }

  async #writePieces(file: PassingFile): Promise<void> {
    this.#note(await this.#tree.writeFileFrom(file, file.pieces()))
  }

  async #digestPieces(file: PassingFile): Promise<void> {
    const digest = createHash('sha256')
    for await (const piece of file.pieces()) digest.update(piece)
    this.#noteDigest(file, digest.digest('hex'))
  }

  #note(file: ExtractedFile): void {
    this.found.set(file.path, file)
    this.#written.add(file.path)
  }

  #noteDigest({ path, size, mode }: PassingFile, sha256: string): void {
    this.found.set(path, { path, size, mode, sha256 })
  }
}

/** A tar, and the rules that it must respect. */
interface TarSource {
  readonly rules: ExtractionRules
  readonly slice: TimeSlice
  /** Returns the tar's bytes, from the beginning on each call. A piece is valid until the next one is requested. */
  readonly unpack: () => AsyncIterable<Buffer>
}

/**
 * A file of a tar that is being read. The path is safe below any folder and does not conflict with the members before
 * it.
 */
interface PassingFile {
  readonly path: string
  readonly mode: 0o644 | 0o755
  /** Bytes. */
  readonly size: number
  /** All of the file's data, if it arrived in one piece; valid until the next file passes. */
  readonly bytes: Buffer | undefined
  /** Yields the file's data in parts. A part is valid until the next one is requested. */
  pieces(): AsyncGenerator<Buffer>
}

/**
 * Reads a whole tar once and plans its extraction. Passes each file to `onFile`, which may read as much of the file's
 * data as it wants. The archive may still be refused until this function returns. After `onFile` throws, it gets no
 * more files. The tar is still read to its end, because a fault in the archive takes precedence over an error from
 * `onFile`. Works in slices. Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or
 * `empty_artifact`, the signal's reason once the slice's signal is aborted, and otherwise the error from `onFile`.
 */
async function readTar(source: TarSource, onFile: OnFile): Promise<ExtractionPlan> {
  const listing = new ArchiveListing(source.rules)
  const failure = await readFiles(source, entry => listing.add(entry), onFile)
  const plan = await source.slice.run(listing.plan())
  if (failure !== null) throw failure.error
  return plan
}

/** Passes each file to `onFile`, as `readTar` does. The listing must have passed, so it is not checked again. */
async function readAgain(source: TarSource, onFile: OnFile): Promise<void> {
  const failure = await readFiles(source, ({ name }) => name, onFile)
  if (failure !== null) throw failure.error
}

type OnFile = (file: PassingFile) => Promise<void> | undefined

/** Returns the error from `onFile`, if there was one. */
async function readFiles(
  { rules, slice, unpack }: TarSource,
  pathOf: (entry: TarEntry) => string,
  onFile: OnFile,
): Promise<{ readonly error: unknown } | null> {
  const parts = new TarParts(slice.pace(unpack()), rules)
  let failure: { readonly error: unknown } | null = null
  try {
    for (let part = await parts.wait(); part !== undefined; part = parts.take() ?? (await parts.wait())) {
      if (slice.isOver()) await slice.giveBack()
      if (!part.isFirst || isRoot(part.entry)) continue
      const path = pathOf(part.entry)
      if (part.entry.type !== 'file' || failure !== null) continue
      try {
        const writing = onFile(passing(path, part, parts))
        // Most files have been written by now, and a needless wait would take as long as hashing a small file.
        if (writing !== undefined) await writing
      } catch (error) {
        failure = { error }
      }
    }
  } finally {
    await parts.close()
  }
  // If `onFile` failed because the file's data could not be read, the parts have ended early.
  if (failure !== null && !parts.isComplete) throw failure.error
  return failure
}

function passing(path: string, first: TarPart, parts: TarParts): PassingFile {
  const { entry, data, isLast } = first
  const bytes = isLast ? data : undefined
  return { path, mode: fileMode(entry), size: entry.size, bytes, pieces: () => dataFrom(first, parts) }
}

async function* dataFrom(first: TarPart, parts: TarParts): AsyncGenerator<Buffer> {
  yield first.data
  for (let { isLast } = first; !isLast; ) {
    // If the tar ends inside a file, `wait` throws.
    const part = await parts.wait()
    if (part === undefined) return
    yield part.data
    isLast = part.isLast
  }
}

const NO_PARTS: Iterable<TarPart> = []

/** The members of a tar, part by part. A part that has arrived can be taken without a promise. */
class TarParts {
  readonly #tar: TarReader
  readonly #pieces: AsyncIterator<Buffer>
  #arrived = NO_PARTS[Symbol.iterator]()
  #isOver = false

  /** `pieces` are the tar's bytes from the beginning. Each piece is valid until the next one is requested. */
  constructor(pieces: AsyncIterable<Buffer>, limits: ExtractionLimits) {
    this.#tar = new TarReader(limits)
    this.#pieces = pieces[Symbol.asyncIterator]()
  }

  /** True if a complete tar was read. */
  get isComplete(): boolean {
    return this.#tar.isComplete
  }

  /** Returns the next part that has arrived, or undefined if only `wait` can tell whether there is another one. */
  take(): TarPart | undefined {
    try {
      const { value, done } = this.#arrived.next()
      return done === true ? undefined : value
    } catch (error) {
      this.#isOver = true
      throw error
    }
  }

  /** Returns the next part once it has arrived; undefined after the last part, and after an error. */
  async wait(): Promise<TarPart | undefined> {
    for (let part = this.take(); ; part = this.take()) {
      if (part !== undefined || this.#isOver) return part
      await this.#readPiece()
    }
  }

  /** Ends the stream of pieces, even if it was not read to its end. */
  async close(): Promise<void> {
    await this.#pieces.return?.()
  }

  async #readPiece(): Promise<void> {
    try {
      const { value, done } = await this.#pieces.next()
      if (done !== true) this.#arrived = this.#tar.read(value)
      else {
        this.#isOver = true
        this.#tar.finish()
      }
    } catch (error) {
      this.#isOver = true
      throw error
    }
  }
}
