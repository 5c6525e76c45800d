import {
  closeSync,
  constants,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { missingTools, whyRightsAreLeftToCi } from '../../extent.ts'
import { mountServed, unmountServed, whyNoFuse } from './fuse.ts'
import { FIRST_MARK, MARK_BYTES } from './logged-disk-server.ts'
import { run, whyNoExt4 } from './mounts.ts'

const DISK_BYTES = 24 * 1024 ** 2

/** A file system for a disk. */
export interface DiskFormat {
  readonly type: 'ext4' | 'btrfs'
  readonly blockBytes: 1024 | 4096
}

/** Turns off ext4's help for programs that replace a file and forget to sync the new one. */
const OPTIONS = { ext4: ',noauto_da_alloc', btrfs: '' }

/** The reason why no disk can be logged here, for a test's `skip`; false if one can. */
export function whyNoLoggedDisk(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  return whyNoFuse() || whyNoExt4()
}

/** The reason why no disk with btrfs can be logged here; false if one can. */
export function whyNoLoggedBtrfs(): string | false {
  const why = whyNoLoggedDisk() || missingTools('mkfs.btrfs')
  if (why !== false) return why
  return !/\bbtrfs$/m.test(readFileSync('/proc/filesystems', 'utf8')) && 'needs a kernel with btrfs'
}

/** Creates an empty file system in a new file. */
export function makeDisk(path: string, format: DiskFormat): void {
  writeFileSync(path, '')
  run('truncate', '-s', String(DISK_BYTES), path)
  run(...commandToMake(format), path)
}

function commandToMake({ type, blockBytes }: DiskFormat): [string, ...string[]] {
  // Mixed groups, because a small disk has no room for separate ones of data and metadata.
  if (type === 'btrfs') return ['mkfs.btrfs', '-q', '--mixed', '-m', 'single', '-d', 'single']
  // Initializes all inode tables and the journal now. Otherwise, the kernel would do so later, and the log would
  // contain those writes.
  const eager = 'lazy_itable_init=0,lazy_journal_init=0,nodiscard'
  return ['mkfs.ext4', '-q', '-F', '-m', '0', '-b', String(blockBytes), '-E', eager]
}

/**
 * Mounts the file system in a file on a new folder for the duration of `work`. Mounting replays its journal. The writes
 * of `work` need not be durable, so there are no barriers.
 */
export async function withMounted<T>(image: string, work: (mounted: string) => T | Promise<T>): Promise<T> {
  const mounted = mkdtempSync(join(tmpdir(), 'disk-'))
  run('mount', '-o', 'loop,nobarrier', image, mounted)
  try {
    return await work(mounted)
  } finally {
    unmount(mounted)
    rmSync(mounted, { recursive: true })
  }
}

/** Unmounts the disk. If that fails because a program still uses the disk, detaches the disk and throws. */
function unmount(path: string): void {
  try {
    run('umount', path)
  } catch (error) {
    run('umount', '-l', path)
    throw error
  }
}

/** A mounted disk whose writes and flushes are logged. */
export interface LoggedDisk {
  /** The folder on which the disk's file system is mounted. */
  readonly mounted: string
  /** Adds a mark to the log at this moment. */
  mark(number: number): void
}

/**
 * Mounts a copy of the disk `base.img` in the folder for the duration of `work`, and logs the writes and flushes of
 * that copy in `disk.log`. The log is complete when the promise resolves. The writes of the unmount come after the last
 * mark.
 */
export async function withLoggedDisk<T>(
  folder: string,
  { type }: DiskFormat,
  work: (disk: LoggedDisk) => Promise<T>,
): Promise<T> {
  const [image, file, mounted] = [join(folder, 'served.img'), join(folder, 'served'), join(folder, 'mounted')]
  copyFileSync(join(folder, 'base.img'), image)
  writeFileSync(file, '')
  mkdirSync(mounted)
  const served = serve(folder, { image, file })
  try {
    run('mount', '-o', `loop,sizelimit=${DISK_BYTES}${OPTIONS[type]}`, file, mounted)
    try {
      return await work({ mounted, mark: number => markOn(file, number) })
    } finally {
      unmount(mounted)
    }
  } finally {
    // The loop device may take a moment to release the file.
    await unmountServed(served)
    for (const path of [image, file, mounted]) rmSync(path, { recursive: true })
  }
}

function serve(folder: string, { image, file }: { image: string; file: string }) {
  const program = [join(import.meta.dirname, 'logged-disk-server.ts'), image, join(folder, 'disk.log')]
  return mountServed(program, file, 'rootmode=100600')
}

/** Adds a mark with a read that bypasses the cache and so reaches the server. */
function markOn(file: string, number: number): void {
  const fd = openSync(file, constants.O_RDONLY | constants.O_DIRECT)
  try {
    readSync(fd, Buffer.alloc(MARK_BYTES), 0, MARK_BYTES, FIRST_MARK + number * MARK_BYTES)
  } finally {
    closeSync(fd)
  }
}
