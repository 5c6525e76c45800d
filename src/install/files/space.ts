import { lstatSync, opendirSync, readFileSync, realpathSync, type StatsFs, statfsSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { type ByteShortage, byteShortage } from '../../core/bytes.ts'
import { DeploymentError } from '../../core/errors.ts'
import { bytesInWords } from '../../core/text.ts'
import { pathBelow } from './spelling.ts'
import { TimeSlice } from './time-slice.ts'

/** Inodes for the journal, the reports and the other records of a deployment. */
export const OWN_INODES = 16

/** The unit in which stat counts blocks, on any file system. */
const STAT_BLOCK_BYTES = 512

/** File systems with larger blocks (on a network, or with compression) do not use a whole block for each small file. */
const MAX_BLOCK_BYTES = 4096

/** The space that must be free on a directory's file system. */
export interface NeededSpace {
  /** The size of each file, in bytes. */
  readonly sizes: Iterable<number>
  /** The number of files, directories and symlinks, including a deployment's own records. */
  readonly inodes: number
}

/** The limits for a tree whose entries are not known yet. */
export interface MostSpace {
  /** Of all files together. */
  readonly bytes: number
  /** The number of files, directories and symlinks. */
  readonly entries: number
}

type FreeSpace = Pick<StatsFs, 'bavail' | 'bsize' | 'files' | 'ffree'>

/**
 * Throws DeploymentError `disk_full` unless the file system of the directory has room for everything: whole blocks, and
 * inodes if their number is fixed. Blocks that are reserved for root count as used. The error says what is needed, what
 * is free, and what to do.
 */
export function requireSpace(
  path: string,
  { sizes, inodes }: NeededSpace,
  readFree: (path: string) => FreeSpace = statfsSync,
): void {
  const { bavail, bsize, files, ffree } = readFree(path)
  const bytes = bytesOnDisk(sizes, Math.min(bsize, MAX_BLOCK_BYTES))
  if (bavail * bsize < bytes) throw outOfSpace(path, byteShortage(bavail * bsize, bytes))
  // A file system that makes inodes as needed reports none.
  if (files > 0 && ffree < inodes) throw outOfInodes(path, { free: ffree, needed: inodes })
}

/**
 * True if there is room for this many entries with this many bytes in total, however the bytes are divided among them.
 */
export function hasSpaceForAny(
  path: string,
  { bytes, entries }: MostSpace,
  readFree: (path: string) => FreeSpace = statfsSync,
): boolean {
  const { bavail, bsize, files, ffree } = readFree(path)
  const hasBytes = bavail * bsize >= bytes + entries * MAX_BLOCK_BYTES
  return hasBytes && (files === 0 || ffree >= entries + OWN_INODES)
}

function bytesOnDisk(sizes: Iterable<number>, blockBytes: number): number {
  let blocks = 0
  for (const size of sizes) blocks += Math.ceil(size / blockBytes)
  return blocks * blockBytes
}

function outOfSpace(path: string, { free, needed }: ByteShortage): DeploymentError {
  return new DeploymentError(
    'disk_full',
    `This run needs ${needed} in ${path}, but the file system of that directory has ${free} free. Nothing was changed: free some space there (df shows how much is free) and run again.`,
  )
}

function outOfInodes(path: string, { free, needed }: { free: number; needed: number }): DeploymentError {
  return new DeploymentError(
    'disk_full',
    `This run needs ${needed} inodes in ${path}, one for each file, directory and symlink, but the file system of that directory has ${free} left. Nothing was changed: remove some files there (df -i shows how many are free) and run again.`,
  )
}

/** The number of files and directories to examine: enough for a size to go by, within a tenth of a second. */
const MAX_MEASURED = 20_000

/**
 * Returns, in words, how much space a file or tree takes on its disk; holes in files take none. Says "at least" if the
 * tree has more than 20,000 entries, or some that cannot be examined. Follows no symlink; never throws.
 */
export async function sizeOnDisk(path: string): Promise<string> {
  const [slice, pending] = [new TimeSlice(), [path]]
  let [bytes, left, isLeast] = [0, MAX_MEASURED, false]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    try {
      const stat = lstatSync(at)
      bytes += stat.blocks * STAT_BLOCK_BYTES
      if (stat.isDirectory()) left = listInto(pending, at, left)
      isLeast ||= left === 0
    } catch {
      isLeast = true
    }
    if (slice.isOver()) await slice.giveBack()
  }
  return `${isLeast ? 'at least ' : ''}${bytesInWords(bytes)}`
}

/** Adds at most `room` entries of a directory to the paths, and returns how many more there is room for. */
function listInto(paths: string[], folder: string, room: number): number {
  const directory = opendirSync(folder)
  try {
    for (let left = room; left > 0; left--) {
      const entry = directory.readSync()
      if (entry === null) return left
      paths.push(join(folder, entry.name))
    }
    return 0
  } finally {
    directory.closeSync()
  }
}

/**
 * Returns the mount points at or below a path, including bind mounts, in the order in which the system lists them.
 * Resolves symlinks in the path's parents, but not in its last component. Returns an empty list if the system does not
 * list its mounts.
 */
export function mountPointsIn(path: string): string[] {
  const mountPoints = readMountPoints()
  if (mountPoints.length === 0) return []
  const real = join(realpathSync(dirname(path)), basename(path))
  return mountPoints.filter(point => pathBelow(real, point) !== undefined)
}

/**
 * Parses the mount points in the text of `/proc/self/mountinfo`, which writes some bytes in octal. Omits deleted mount
 * points.
 */
export function parseMountPoints(text: Buffer): string[] {
  const lines = text.toString('latin1').split('\n')
  const points = lines.flatMap(line => line.split(' ').slice(4, 5))
  return points.filter(point => !point.endsWith('//deleted')).map(decode)
}

function decode(point: string): string {
  const bytes = point.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8)))
  return Buffer.from(bytes, 'latin1').toString('utf8')
}

function readMountPoints(): string[] {
  try {
    return parseMountPoints(readFileSync('/proc/self/mountinfo'))
  } catch {
    return []
  }
}
