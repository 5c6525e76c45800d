import {
  ArchiveListing,
  type ExtractionLimits,
  type ExtractionPlan,
  type ExtractionRules,
  fileMode,
} from '../../core/archive/policy.ts'
import { isRoot, type TarPart, TarReader } from '../../core/archive/tar.ts'
import type { ExtractedFile, ExtractedTree } from '../files/extracted-tree.ts'
import { hasSpaceForAny, requireSpace } from '../files/space.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { declaredBytes, type OpenedArtifact, unpackZstd } from './sealed.ts'
import { type Extraction, spaceFor, TreeWriter } from './writer.ts'

/** A request to extract a tar, or some of its files. */
export interface TarExtractionRequest extends Extraction {
  /** The paths of the files to write; undefined for everything. Their directories are created, too. */
  readonly only?: ReadonlySet<string> | undefined
}

interface TarExtraction extends TarSource, TarExtractionRequest {
  readonly opened: OpenedArtifact
}

/**
 * Extracts an opened artifact's tar. Keeps the paths of the tar, but drops a leading `./`. Writes each file as soon as
 * the file's own path has been checked, while the rest of the listing is still being read. The caller must not use
 * anything in `target` before this function returns: only then has the whole listing passed. Never writes through a
 * symlink: it writes only into `target` and directories that it created, creates files exclusively, and creates
 * symlinks last. Files become 0644 or 0755 and directories 0755, whatever the umask. With `only`, performs the same
 * checks, but writes only those files and their directories. Works in slices, between which signals are handled.
 * Throws ArchiveError `invalid_archive`, `unsafe_archive`, `archive_too_large` or `empty_artifact`. Throws
 * DeploymentError `disk_full`, `host_not_writable` or `step_failed` only if the archive itself is sound. Throws the
 * signal's reason once the signal is aborted.
 */
export async function extractTar(opened: OpenedArtifact, request: TarExtractionRequest): Promise<ExtractedTree> {
  const { limits, signal } = request
  signal?.throwIfAborted()
  const rules = { ...limits, platform: process.platform, shape: 'as packed' as const }
  const unpack = (): AsyncIterable<Buffer> => unpackZstd(opened, limits)
  const extraction: TarExtraction = { ...request, opened, rules, unpack, slice: new TimeSlice(signal) }
  await requireRoom(extraction)
  return await writeTar(extraction)
}

/**
 * Throws DeploymentError `disk_full` unless there is room for all that will be written. It is enough if there is room
 * for the largest tree that the limits and the declared size allow. If there is less room, makes an extra pass over the
 * tar to find out what its entries need.
 */
async function requireRoom(extraction: TarExtraction): Promise<void> {
  const { target, limits, opened } = extraction
  const bytes = Math.min(declaredBytes(opened) ?? Number.POSITIVE_INFINITY, limits.maxExtractedBytes)
  if (hasSpaceForAny(target, { bytes, entries: limits.maxEntries })) return
  requireSpace(target, spaceFor(reduced(await listTar(extraction), extraction)))
}

async function listTar(source: TarSource): Promise<ExtractionPlan> {
  return await readTar(source, () => undefined)
}

function reduced(plan: ExtractionPlan, { only }: TarExtractionRequest): ExtractionPlan {
  if (only === undefined) return plan
  const files = plan.files.filter(({ path }) => only.has(path))
  const paths = files.map(({ path }) => path)
  const directories = plan.directories.filter(folder => paths.some(path => path.startsWith(`${folder}/`)))
  return { ...plan, files, directories, symlinks: [] }
}

async function writeTar(extraction: TarExtraction): Promise<ExtractedTree> {
  const { target, slice, only } = extraction
  const tree = new TreeWriter(target, slice)
  const passing = new PassingFileWriter(tree)
  const isLeftOut = (path: string): boolean => only?.has(path) === false
  const plan = await readTar(extraction, file => (isLeftOut(file.path) ? undefined : passing.write(file)))
  const { directories, symlinks, flattened } = reduced(plan, extraction)
  await slice.forEach(directories, path => passing.makeDirectory(path))
  await slice.forEach(symlinks, symlink => tree.makeSymlink(symlink))
  const files = plan.files.flatMap(({ path }) => passing.written.get(path) ?? [])
  return { files, symlinks, directories, bytes: files.reduce((sum, { size }) => sum + size, 0), flattened }
}

/** Writes files in any order. Creates each directory once, before the first file in it. */
class PassingFileWriter {
  /** The files written so far, by path. */
  readonly written = new Map<string, ExtractedFile>()
  readonly #tree: TreeWriter
  readonly #directories = new Set<string>()

  constructor(tree: TreeWriter) {
    this.#tree = tree
  }

  /** Writes a file. Returns undefined if the file has been written, otherwise a promise that resolves when it has. */
  write(file: PassingFile): Promise<void> | undefined {
    this.#makeDirectoryOf(file.path)
    if (file.bytes === undefined) return this.#writePieces(file)
    this.written.set(file.path, this.#tree.writeFile(file, file.bytes))
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
    this.written.set(file.path, await this.#tree.writeFileFrom(file, file.pieces()))
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
async function readTar(
  { rules, slice, unpack }: TarSource,
  onFile: (file: PassingFile) => Promise<void> | undefined,
): Promise<ExtractionPlan> {
  const listing = new ArchiveListing(rules)
  const parts = new TarParts(slice.pace(unpack()), rules)
  let failure: { readonly error: unknown } | null = null
  try {
    for (let part = await parts.wait(); part !== undefined; part = parts.take() ?? (await parts.wait())) {
      if (slice.isOver()) await slice.giveBack()
      if (!part.isFirst || isRoot(part.entry)) continue
      const path = listing.add(part.entry)
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
  const plan = await slice.run(listing.plan())
  if (failure !== null) throw failure.error
  return plan
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
