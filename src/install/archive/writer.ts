import { createHash, hash } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, symlinkSync, writeFileSync } from 'node:fs'
import { unsafeEntry } from '../../core/archive/planned-tree.ts'
import type { ExtractionLimits, ExtractionPlan, PlannedFile, PlannedSymlink } from '../../core/archive/policy.ts'
import { errnoOf } from '../../core/errors.ts'
import { makeOpenDirectorySync, withOpenUmask } from '../files/durable.ts'
import { toHostError } from '../files/errors.ts'
import type { ExtractedFile, ExtractedTree } from '../files/extracted-tree.ts'
import { type NeededSpace, OWN_INODES, requireSpace } from '../files/space.ts'
import type { TimeSlice } from '../files/time-slice.ts'
import { ownerOf, stampOf } from '../files/walk.ts'

const PERMISSION_BITS = 0o7777n
/** O_EXCL fails if anything is at the path, even a symlink. */
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL

type FileToWrite = Pick<ExtractedFile, 'path' | 'mode'>

/**
 * Creates new files, directories and symlinks below a folder. Files get the given modes, and directories 0755, as
 * `withOpenUmask` says. Never overwrites anything that exists. Create symlinks last, so that nothing is written through
 * them.
 * Every method throws DeploymentError `disk_full`, `host_not_writable` or `step_failed` if the host refuses a write,
 * and ArchiveError `unsafe_archive` if two paths are the same on this file system, or if a path is too long for it.
 */
export class TreeWriter {
  readonly #root: string
  readonly #slice: TimeSlice
  /** The written files that begin with `#!` but are not executable. */
  readonly #scripts: string[] = []
  readonly #makeFolder: MakeFolder

  constructor(root: string, slice: TimeSlice, makeFolder: MakeFolder = (_, at) => makeOpenDirectorySync(at)) {
    this.#root = root
    this.#slice = slice
    this.#makeFolder = makeFolder
  }

  /**
   * Creates everything in a plan, if there is room for it in bytes and inodes: directories first, symlinks last. In
   * between, `writeFiles` writes the files and returns them in the order of the plan. Throws what `writeFiles` throws,
   * and the signal's reason once the slice's signal is aborted.
   */
  async writeTree(
    plan: ExtractionPlan,
    writeFiles: (files: readonly PlannedFile[]) => Promise<ExtractedFile[]>,
  ): Promise<ExtractedTree> {
    requireSpace(this.#root, spaceFor(plan))
    const { files, directories, symlinks } = plan
    await this.#slice.forEach(directories, path => this.makeDirectory(path))
    const written = await writeFiles(files)
    await this.#slice.forEach(symlinks, symlink => this.makeSymlink(symlink))
    const { lacksModes, ...tree } = plan
    return { ...tree, files: written, ...(lacksModes ? { scripts: this.#scripts } : {}) }
  }

  makeDirectory(path: string): void {
    asHostError(path, () => this.#makeFolder(path, this.#at(path)))
  }

  makeSymlink({ path, target }: Pick<PlannedSymlink, 'path' | 'target'>): void {
    asHostError(path, () => symlinkSync(target, this.#at(path)))
  }

  /** Writes a whole file. Computes the digest of `bytes` unless the caller passes it as `sha256`. */
  writeFile({ path, mode }: FileToWrite, bytes: Buffer, sha256: string = hash('sha256', bytes, 'hex')): ExtractedFile {
    this.#noteScript({ path, mode }, bytes)
    const found = asHostError(path, () => {
      const fd = this.#openNew(path, mode)
      try {
        writeFileSync(fd, bytes)
        return identify(fd)
      } finally {
        closeSync(fd)
      }
    })
    return { path, size: bytes.length, sha256, ...found }
  }

  /** Writes a file piece by piece. Errors that the pieces themselves throw are passed on unchanged. */
  async writeFileFrom({ path, mode }: FileToWrite, pieces: AsyncIterable<Buffer>): Promise<ExtractedFile> {
    const digest = createHash('sha256')
    let size = 0
    let found: FileIdentity
    const fd = asHostError(path, () => this.#openNew(path, mode))
    try {
      for await (const piece of pieces) {
        if (size === 0) this.#noteScript({ path, mode }, piece)
        asHostError(path, () => writeFileSync(fd, piece))
        digest.update(piece)
        size += piece.length
      }
      found = asHostError(path, () => identify(fd))
    } finally {
      closeSync(fd)
    }
    return { path, size, sha256: digest.digest('hex'), ...found }
  }

  #noteScript({ path, mode }: FileToWrite, start: Buffer): void {
    if (mode === 0o644 && start[0] === 0x23 && start[1] === 0x21) this.#scripts.push(path)
  }

  #openNew(path: string, mode: number): number {
    return withOpenUmask(() => openSync(this.#at(path), NEW_FILE, mode))
  }

  #at(path: string): string {
    return `${this.#root}/${path}`
  }
}

/** Creates a directory of an archive at an absolute path. */
type MakeFolder = (path: string, at: string) => void

type FileIdentity = Pick<ExtractedFile, 'mode' | 'owner' | 'stamp'>

/** Returns the mode, the owner and the stamp of a written file. */
function identify(fd: number): FileIdentity {
  const stat = fstatSync(fd, { bigint: true })
  return { mode: Number(stat.mode & PERMISSION_BITS), owner: ownerOf(stat), stamp: stampOf(stat) }
}

/**
 * Returns the space and the inodes that a planned tree takes on a disk, including the inodes for the deployment's own
 * records. A directory or a symlink takes a block, too.
 */
export function spaceFor({ files, directories, symlinks }: ExtractionPlan): NeededSpace {
  const others = Array<number>(directories.length + symlinks.length).fill(1)
  const sizes = [...files.map(({ size }) => size), ...others]
  return { sizes, inodes: sizes.length + OWN_INODES }
}

function asHostError<Made>(path: string, action: () => Made): Made {
  try {
    return action()
  } catch (error) {
    const errno = errnoOf(error)
    if (errno === 'EEXIST') throw unsafeEntry(path, 'has the same name as another entry on this file system')
    if (errno === 'ENAMETOOLONG') throw unsafeEntry(path, 'has a path that is too long for this file system')
    throw toHostError(error, `extracting "${path}"`)
  }
}

/** The target and the limits of an extraction. */
export interface Extraction {
  /** An existing, empty, private directory. If the extraction throws, the caller removes what was written. */
  readonly target: string
  readonly limits: ExtractionLimits
  readonly signal?: AbortSignal | undefined
  /** Creates each directory of the archive, instead of `makeOpenDirectorySync`. */
  readonly makeFolder?: MakeFolder | undefined
}
