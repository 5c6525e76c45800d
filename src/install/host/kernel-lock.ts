import { closeSync, constants, fstatSync, lstatSync, openSync, statfsSync } from 'node:fs'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { allowedEnvironment, runChild } from '../files/child-process.ts'
import { closeQuietlySync } from '../files/open.ts'

/** The descriptor's number in the child, and the exit code of `flock` when another process has the lock. */
const CHILD_DESCRIPTOR = 3
const EXIT_BUSY = 1

/** How long `flock` may take to answer on a busy host, or on a slow network file system. */
export const ANSWER_TIMEOUT_MS = { least: 1000, most: 5000 }

interface KernelLockRequest {
  path: string
  /** `flock` usually answers at once. If it does not answer within this time, the lock counts as unavailable. */
  timeoutMs: number
  signal?: AbortSignal | undefined
}

export interface KernelLock {
  /** The inode of the locked file. */
  readonly id: string
  /** May be called again. */
  release(): void
}

/** `unavailable`: this host has no `flock`, `flock` did not answer in time, or the file system has no such locks. */
export type KernelLockAttempt = KernelLock | 'busy' | 'unavailable'

/**
 * Tries once to lock a file. Creates the file if it is missing. The file must never be removed. `flock` (util-linux)
 * locks a descriptor that this process keeps open, and then exits. Only `flock` inherits the descriptor, so the lock
 * ends with this process, however this process ends. Throws the system's error, the signal's reason, or DeploymentError
 * `unsafe_host` if the path is not a regular file.
 */
export async function tryKernelLock(request: KernelLockRequest): Promise<KernelLockAttempt> {
  const { path } = request
  const fd = openRegularFileSync(path)
  let attempt: KernelLockAttempt = 'busy'
  try {
    const answer = await flock(fd, request)
    if (answer !== 'held') attempt = answer
    else if (isFileAt(path, fd)) attempt = lockOf(fd)
    return attempt
  } finally {
    if (typeof attempt === 'string') closeSync(fd)
  }
}

/**
 * Returns the inode of a lock file that no process has locked. To find out, takes a shared lock for an instant. Returns
 * undefined if a process has locked the file, if the file was replaced meanwhile, or if its state cannot be determined.
 * Writes nothing, and does not create a missing file. Throws only the signal's reason.
 */
export async function readFreeKernelLock(request: KernelLockRequest): Promise<string | undefined> {
  let fd: number | undefined
  try {
    fd = openSync(request.path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    const isFree = (await flock(fd, { ...request, isShared: true })) === 'held'
    return isFree && isFileAt(request.path, fd) ? String(fstatSync(fd, { bigint: true }).ino) : undefined
  } catch {
    request.signal?.throwIfAborted()
    return undefined
  } finally {
    if (fd !== undefined) closeQuietlySync(fd)
  }
}

function lockOf(fd: number): KernelLock {
  let isOpen = true
  return {
    id: String(fstatSync(fd, { bigint: true }).ino),
    release() {
      if (isOpen) closeQuietlySync(fd)
      isOpen = false
    },
  }
}

/**
 * True if a path is on a file system that no two machines can use at once. On other file systems (network file systems,
 * folders that a virtual machine shares with its host), each machine may keep its locks to itself.
 */
export function isOnOneMachine(path: string): boolean {
  return ONE_MACHINE_FILE_SYSTEMS.has(statfsSync(path).type)
}

/** The kernel's magic numbers (linux/magic.h). */
const ONE_MACHINE_FILE_SYSTEMS: ReadonlySet<number> = new Set([
  0xef53, // ext2, ext3, ext4
  0x58465342, // xfs
  0x9123683e, // btrfs
  0x2fc12fc1, // zfs
  0xf2f52010, // f2fs
  0xca451a4e, // bcachefs
  0x794c7630, // overlay
  0x01021994, // tmpfs
])

/** Opens the file for writing, because network file systems require that for a lock. */
function openRegularFileSync(path: string): number {
  const fd = openForLockingSync(path)
  if (fstatSync(fd).isFile()) return fd
  closeSync(fd)
  throw notAFile(path)
}

function openForLockingSync(path: string): number {
  try {
    return openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK, 0o600)
  } catch (error) {
    throw toOpenError(path, error)
  }
}

async function flock(
  fd: number,
  { timeoutMs, signal, isShared = false }: Omit<KernelLockRequest, 'path'> & { isShared?: boolean },
): Promise<'held' | 'busy' | 'unavailable'> {
  const end = await runChild({
    command: ['flock', '-n', ...(isShared ? ['-s'] : []), String(CHILD_DESCRIPTOR)],
    env: allowedEnvironment({ LC_ALL: 'C' }),
    timeoutMs,
    signal,
    isSilent: true,
    descriptor: fd,
  })
  if (end.kind !== 'exited') return 'unavailable'
  if (end.code === 0) return 'held'
  return end.code === EXIT_BUSY ? 'busy' : 'unavailable'
}

/** A lock on a file that has since been removed excludes nobody. */
function isFileAt(path: string, fd: number): boolean {
  const locked = fstatSync(fd, { bigint: true })
  const found = lstatSync(path, { bigint: true, throwIfNoEntry: false })
  return found !== undefined && found.ino === locked.ino && found.dev === locked.dev
}

/**
 * Returns the error for a path of the lock that is not the expected kind of file: only this action writes there, so
 * another program or user interfered.
 */
export function notAFile(path: string, expected = 'a regular file'): DeploymentError {
  return new DeploymentError(
    'unsafe_host',
    `${path} is not ${expected}, but this action keeps its lock there. Find out which program or user put it there, and remove it while no deployment runs.`,
  )
}

/**
 * Returns `notAFile` if an `open` that follows no symlinks failed because the path is not a regular file. Otherwise
 * returns the error unchanged.
 */
export function toOpenError(path: string, error: unknown): unknown {
  return NOT_A_FILE.has(errnoOf(error) ?? '') ? notAFile(path) : error
}

/** The codes for a symlink, a directory, a socket, and a device without a driver. */
const NOT_A_FILE: ReadonlySet<string> = new Set(['ELOOP', 'EISDIR', 'ENXIO', 'ENODEV'])
