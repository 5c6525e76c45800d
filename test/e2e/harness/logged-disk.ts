import {
  closeSync,
  constants,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { whyRightsAreLeftToCi } from '../../extent.ts'
import { mountServed, unmountServed, whyNoFuse } from './fuse.ts'
import { FIRST_MARK, MARK_BYTES } from './logged-disk-server.ts'
import { run, whyNoExt4 } from './mounts.ts'

const DISK_BYTES = 24 * 1024 ** 2
/** Turns off ext4's help for programs that replace a file and forget to sync the new one. */
const OPTIONS = `loop,sizelimit=${DISK_BYTES},noauto_da_alloc`

/** The reason why no disk can be logged here, for a test's `skip`; false if one can. */
export function whyNoLoggedDisk(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  return whyNoFuse() || whyNoExt4()
}

/** Creates an empty ext4 file system with a journal, in a new file. */
export function makeDisk(path: string, blockBytes: 1024 | 4096): void {
  writeFileSync(path, '')
  run('truncate', '-s', String(DISK_BYTES), path)
  // Initializes all inode tables and the journal now. Otherwise, the kernel would do so later, and the log would
  // contain those writes.
  run(
    'mkfs.ext4',
    '-q',
    '-F',
    '-m',
    '0',
    '-b',
    String(blockBytes),
    '-E',
    'lazy_itable_init=0,lazy_journal_init=0,nodiscard',
    path,
  )
}

/**
 * Mounts the ext4 in a file on a new folder for the duration of `work`. Mounting replays the journal of the ext4. The
 * writes of `work` need not be durable, so there are no barriers.
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
  /** The folder on which the disk's ext4 is mounted. */
  readonly mounted: string
  /** Adds a mark to the log at this moment. */
  mark(number: number): void
}

/**
 * Mounts a copy of the disk `base.img` in the folder for the duration of `work`, and logs the writes and flushes of
 * that copy in `disk.log`. The log is complete when the promise resolves. The writes of the unmount come after the last
 * mark.
 */
export async function withLoggedDisk<T>(folder: string, work: (disk: LoggedDisk) => Promise<T>): Promise<T> {
  const [image, file, mounted] = [join(folder, 'served.img'), join(folder, 'served'), join(folder, 'mounted')]
  copyFileSync(join(folder, 'base.img'), image)
  writeFileSync(file, '')
  mkdirSync(mounted)
  const served = serve(folder, { image, file })
  try {
    run('mount', '-o', OPTIONS, file, mounted)
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
