import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statfsSync, truncateSync, writeFileSync } from 'node:fs'
import { freemem, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { firstLine, isInstalled } from './programs.ts'

/** A folder to deploy into, with a description of its file system. */
export interface FileSystem {
  readonly folder: string
  readonly description: string
  close(): void
}

const MEMORY_FOLDER = '/dev/shm'
const LOOP_IMAGE_BYTES = 8e9
const PROBE_FILES = 3_000

/**
 * Opens the file system to measure on: `tmpfs`, `loop`, or any folder. `loop` is ext4 with a journal, in an image file
 * that is in memory if memory suffices; it needs root. Default: `loop` if possible, else `tmpfs` if memory suffices,
 * else the temporary folder. A slow disk would hide the differences between the contenders.
 */
export function openFileSystem(wanted: string | undefined): FileSystem {
  const choice = wanted ?? defaultChoice()
  if (choice === 'loop') return openLoop()
  const parent = choice === 'tmpfs' ? MEMORY_FOLDER : resolve(choice)
  const folder = mkdtempSync(join(parent, 'hub-deploy-bench-'))
  return {
    folder,
    description: `${typeOf(folder)} (${parent})`,
    close: () => rmSync(folder, { recursive: true, force: true }),
  }
}

/** Measures the speed of the file system: the milliseconds to create and to delete 3,000 small files. */
export function probe({ folder }: FileSystem): { createMs: number; deleteMs: number } {
  const files = mkdtempSync(join(folder, 'probe-'))
  const startedAt = performance.now()
  for (let index = 0; index < PROBE_FILES; index++) writeFileSync(join(files, `file-${index}`), 'a line of text\n')
  const createdAt = performance.now()
  rmSync(files, { recursive: true })
  return { createMs: createdAt - startedAt, deleteMs: performance.now() - createdAt }
}

function defaultChoice(): string {
  if (process.getuid?.() === 0 && isInstalled('mkfs.ext4') && canMountLoop()) return 'loop'
  return isRoomy(MEMORY_FOLDER) ? 'tmpfs' : tmpdir()
}

function canMountLoop(): boolean {
  return firstLine('losetup', ['-f']) !== undefined
}

function openLoop(): FileSystem {
  const parent = isRoomy(MEMORY_FOLDER) ? MEMORY_FOLDER : tmpdir()
  const holder = mkdtempSync(join(parent, 'hub-deploy-bench-'))
  const folder = join(holder, 'mounted')
  const image = join(holder, 'image')
  const removeHolder = () => rmSync(holder, { recursive: true })
  try {
    mkdirSync(folder)
    closeSync(openSync(image, 'w'))
    truncateSync(image, LOOP_IMAGE_BYTES)
    execFileSync('mkfs.ext4', ['-q', '-F', image])
    execFileSync('mount', ['-o', 'loop', image, folder])
  } catch (error) {
    removeHolder()
    throw error
  }
  const close = () => {
    execFileSync('umount', [folder])
    removeHolder()
  }
  return { folder, description: `ext4 with a journal, in a loop file on ${typeOf(holder)}`, close }
}

function isRoomy(folder: string): boolean {
  const { bavail, bsize } = statfsSync(folder, { bigint: false })
  return bavail * bsize > LOOP_IMAGE_BYTES && freemem() > LOOP_IMAGE_BYTES
}

function typeOf(folder: string): string {
  return firstLine('stat', ['-f', '-c', '%T', folder]) ?? 'unknown file system'
}
