import type { ExtractionPlan } from '../../core/archive/archive-policy.ts'
import { hasSpaceForAny, requireSpace } from '../files/space.ts'
import { TimeSlice } from '../files/time-slice.ts'
import type { ExtractedFile, ExtractedTree } from '../files/trees/extracted-tree.ts'
import type { Extraction } from './extraction.ts'
import { type PassingFile, readTar, type TarSource } from './read-tar.ts'
import { spaceFor, TreeWriter } from './tree-writer.ts'
import type { OpenedArtifact } from './unseal.ts'
import { declaredBytes, unpackZstd } from './zstd-stream.ts'

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
 * tar to find out what its entries need. That pass throws as `readTar` does.
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
  const paths = Array.from(files, ({ path }) => path)
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
  const files = Array.from(plan.files).flatMap(({ path }) => passing.written.get(path) ?? [])
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
