import { createHash } from 'node:crypto'
import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  openSync,
  readdirSync,
  renameSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { hostname } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/text.ts'
import { ownerOfTemporary, temporaryName } from '../files/durable.ts'
import { readSmallFileSync } from '../files/open.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { isOnOneMachine, notAFile, toOpenError } from './kernel-lock.ts'
import { isProvablyDead, pidExists } from './process-identity.ts'

const MARK = '.takeover-'
const MAX_BYTES = 64 * 1024

const ownSchema = z.object({
  id: z.string().check(z.regex(/^[0-9a-f-]{36}$/)),
  pid: z.int().check(z.positive()),
  start_time: z.nullable(z.string()),
  boot_id: z.nullable(z.string()),
  machine_id: z.nullable(z.string()),
  /** The inode of the file that the process had locked in the kernel when it wrote this; null without a kernel lock. */
  kernel_lock: z.nullable(z.string()),
  pid_namespace: z.nullable(z.string()),
  hostname: z.string(),
  run_url: z.nullable(z.string()),
  /** The name and version that the holder deploys, for messages. */
  deployment: z.nullable(z.string()),
  since: z.string(),
})
/** A process that has a lock, or wants it. */
export type Holder = z.infer<typeof ownSchema>

/**
 * A holder on another host, from whom no lock may be taken: a file that names the host is never garbage, whatever else
 * it says.
 */
const foreignSchema = z.lazy(() =>
  z.object({
    id: z.catch(z.nullable(ownSchema.shape.id), null),
    pid: z.catch(z.nullable(ownSchema.shape.pid), null),
    hostname: z.string().check(z.refine(name => name !== hostname())),
    run_url: z.catch(z.nullable(z.string()), null),
    deployment: z.catch(z.nullable(z.string()), null),
    since: z.catch(z.nullable(z.string()), null),
  }),
)

export interface FoundLock {
  path: string
  id: string
  /** Undefined if the content is garbage. */
  holder: Holder | z.infer<typeof foreignSchema> | undefined
}

/**
 * Tries once to become the holder that the file at `path` names: creates the file, or takes it over if its holder is
 * provably dead or its content is garbage. The loser of a race never harms the winner: only the process that created
 * the one take-over mark of a dead holder may replace that holder's lock. Needs no hard links, and works between
 * processes with and without a kernel lock. On a full disk, makes the file `reserve` the lock, if the file system has
 * hard links, or, with the kernel lock, takes over a lock in place.
 */
export function tryTake(path: string, own: Holder, reserve?: string): boolean {
  if (!tryCreate(path, own, reserve) && !isOwnOrTakenOver(path, own, reserve)) return false
  // The order matters: a process that has not made its mark yet will read a complete file, and a process that has
  // removed its mark has already replaced the file.
  return !isBeingTakenOver(path, own) && readLock(path)?.id === own.id
}

/**
 * Returns undefined if there is no file. Throws the system's error, or DeploymentError `unsafe_host` if the path is not
 * a regular file of at most 64 KiB.
 */
export function readLock(path: string): FoundLock | undefined {
  const text = readIfPresentSync(path)
  if (text === undefined) return undefined
  const holder = parseHolder(text)
  return { path, id: holder?.id ?? createHash('sha256').update(text).digest('hex').slice(0, 32), holder }
}

/** Removes a lock, or a mark, if it belongs to this holder. If there is no file `reserve`, the lock becomes that file. */
export function release(path: string, id: string, reserve?: string): void {
  if (readLock(path)?.id !== id) return
  if (reserve === undefined || pathExistsSync(reserve)) unlinkSync(path)
  else renameSync(path, reserve)
}

/**
 * Removes files that killed processes left next to a lock: take-over marks, and files that were to replace the lock.
 * The caller has the lock. Leaves the files of processes that may be alive, for example on another host or in another
 * pid namespace, and anything that is not a file. A file that cannot be removed is harmless; the next holder tries
 * again.
 */
export function removeDeadMarks(path: string, own: Holder): void {
  for (const name of namesNextTo(path, '.')) {
    const found = tryReadLock(join(dirname(path), name))
    if (found !== undefined && isLeftOver(found, own)) tryUnlinkSync(found.path)
  }
}

export function describeHolder(holder: NonNullable<FoundLock['holder']>): string {
  const where = `process ${holder.pid ?? '(unknown)'} on ${cleanForeignText(holder.hostname, 100)}`
  const run = holder.run_url === null ? '' : `, ${cleanForeignText(holder.run_url, 300)}`
  const deployment = holder.deployment !== null ? ` to deploy ${cleanForeignText(holder.deployment, 200)}` : ''
  return `${where} has held the lock since ${cleanForeignText(holder.since ?? 'an unknown time', 40)}${deployment}${run}`
}

/** Not synced: after a power failure, the file is from another boot, or garbage, and is taken over either way. */
function tryCreate(path: string, own: Holder, reserve?: string): boolean {
  try {
    createSync(path, own)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    if (!isFull(error) || reserve === undefined) throw error
    const claim = temporaryName(path)
    if (!takeReserve(reserve, path, claim)) throw error
    return tryLink(claim, path, { own, reserve })
  }
}

/** Leaves no file that is not complete, because each would take an inode. */
function createSync(path: string, own: Holder): void {
  const fd = openSync(path, 'wx', 0o600)
  try {
    writeFileSync(fd, textOf(own))
  } catch (error) {
    if (lstatIfPresentSync(path)?.ino === fstatSync(fd).ino) tryUnlinkSync(path)
    throw error
  } finally {
    closeSync(fd)
  }
}

/** Fits into one block of every file system, and fills it, so that another holder can be written in place. */
const USUAL_BYTES = 1024

/** Returns the holder as JSON, padded with spaces to this size. */
function textOf(own: Holder, bytes = USUAL_BYTES): string {
  return `${JSON.stringify(own).padEnd(bytes - 1)}\n`
}

function isFull(error: unknown): boolean {
  return ['ENOSPC', 'EDQUOT'].includes(errnoOf(error) ?? '')
}

/** Gives a file whose inode and blocks a lock may use a name that no other process uses. Returns false without one. */
function takeReserve(reserve: string, path: string, claim: string): boolean {
  // A process that was killed may have left the reserve under the name that it had given it.
  const left = namesNextTo(path, '.').filter(name => pidExists(ownerOfTemporary(name) ?? process.pid) === false)
  const files = [reserve, ...left.map(name => join(dirname(path), name))]
  return files.some(file => lstatIfPresentSync(file)?.nlink === 1 && tryRenameSync(file, claim))
}

interface Claiming {
  readonly own: Holder
  readonly reserve: string
}

/** Makes the reserve, which has the name `claim`, the lock. That needs neither an inode nor a block. */
function tryLink(claim: string, path: string, { own, reserve }: Claiming): boolean {
  try {
    writeInPlaceSync(claim, own)
    linkSync(claim, path)
    tryUnlinkSync(claim)
    return true
  } catch (error) {
    tryRenameSync(claim, reserve)
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

/** Replaces the text of a file by one of the same size. */
function writeInPlaceSync(path: string, own: Holder): void {
  const fd = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW)
  try {
    writeSync(fd, textOf(own, fstatSync(fd).size), 0)
  } finally {
    closeSync(fd)
  }
}

function tryRenameSync(from: string, to: string): boolean {
  try {
    renameSync(from, to)
    return true
  } catch {
    return false
  }
}

function isOwnOrTakenOver(path: string, own: Holder, reserve?: string): boolean {
  const found = readLock(path)
  if (found === undefined) return false
  return found.id === own.id || (isAbandoned(found, own) && takeOver(found, own, reserve))
}

/**
 * The mark is itself a lock, named after the dead holder, so that contenders for the locks of different dead holders
 * never meet. The mark of a contender that died is taken over in turn. Only the process with the mark may touch the
 * lock of that dead holder: the mark itself becomes the lock.
 */
function takeOver(dead: FoundLock, own: Holder, reserve?: string): boolean {
  const mark = `${dead.path}${MARK}${dead.id}`
  try {
    const isReplaced = tryTake(mark, own, reserve) && readLock(dead.path)?.id === dead.id
    if (isReplaced) renameSync(mark, dead.path)
    else release(mark, own.id, reserve)
    return isReplaced
  } catch (error) {
    // The first error says what is wrong. If the mark stays, the next holder removes it.
    if (tryReadLock(mark)?.id === own.id) tryUnlinkSync(mark)
    if (!isFull(error) || own.kernel_lock === null) throw error
    return takeOverInPlace(dead, own, mark)
  }
}

/**
 * Takes over a lock on a disk without any space. The kernel lock keeps away the processes that have kernel locks; the
 * others make a mark first, so one of them may still replace the file.
 */
function takeOverInPlace({ path, id }: FoundLock, own: Holder, mark: string): boolean {
  const isMarked = (): boolean => {
    const found = readLock(mark)
    return found !== undefined && !isAbandoned(found, own)
  }
  if (isMarked() || readLock(path)?.id !== id) return false
  writeInPlaceSync(path, own)
  return !isMarked()
}

/**
 * True if a live process may still replace the file, because that process read the file while it was half written and
 * looked like garbage. Call this function only after the file is complete, when no process reads garbage anymore.
 */
function isBeingTakenOver(path: string, own: Holder): boolean {
  const marks = namesNextTo(path, MARK).filter(name => /^[0-9a-f]{32}$/.test(name.slice(basename(path + MARK).length)))
  return marks.some(name => {
    const found = readLock(join(dirname(path), name))
    return found !== undefined && !isAbandoned(found, own)
  })
}

/**
 * True if the holder of a lock has provably ended, judging by this process's identity and the kernel lock, or if the
 * content of the lock is garbage.
 */
export function isAbandoned({ path, holder }: FoundLock, own: Holder): boolean {
  if (holder === undefined) return true
  // If only the host of a holder is known, the holder cannot be proved dead.
  if (!('boot_id' in holder)) return false
  return isWithoutItsKernelLock(holder, own, path) || isProvablyDead(holder, own)
}

/**
 * True if the holder no longer has its kernel lock, because this process has that lock or has found it free. In that
 * case, the holder has ended.
 */
function isWithoutItsKernelLock(holder: Holder, own: Holder, path: string): boolean {
  if (own.kernel_lock === null || holder.kernel_lock !== own.kernel_lock) return false
  const isSame = (key: 'boot_id' | 'machine_id'): boolean => own[key] !== null && holder[key] === own[key]
  return isSame('boot_id') || isSame('machine_id') || isOnOneMachine(dirname(path))
}

function isLeftOver(found: FoundLock, own: Holder): boolean {
  const writer = ownerOfTemporary(basename(found.path))
  if (writer === undefined || found.holder !== undefined) return isAbandoned(found, own)
  // Garbage may be a file that its process is still writing.
  return !pidExists(writer)
}

function namesNextTo(path: string, suffix: string): string[] {
  return readdirSync(dirname(path)).filter(name => name.startsWith(basename(path) + suffix))
}

/** Does the same as `readLock`, but also returns undefined if the lock cannot be read. */
export function tryReadLock(path: string): FoundLock | undefined {
  try {
    return readLock(path)
  } catch {
    return undefined
  }
}

function readIfPresentSync(path: string): string | undefined {
  try {
    const text = readSmallFileSync(path, MAX_BYTES, constants.O_NOFOLLOW)
    if (text === undefined) throw notAFile(path, `a regular file of at most ${MAX_BYTES / 1024} KiB`)
    return text
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw toOpenError(path, error)
  }
}

function parseHolder(text: string): FoundLock['holder'] {
  try {
    return z.union([ownSchema, foreignSchema]).parse(JSON.parse(text))
  } catch {
    return undefined
  }
}
