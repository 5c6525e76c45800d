import { createHash } from 'node:crypto'
import { closeSync, constants, openSync, readdirSync, renameSync, unlinkSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/text.ts'
import { ownerOfTemporary, temporaryName } from '../files/durable.ts'
import { readSmallFileSync } from '../files/open.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
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
 * processes with and without a kernel lock.
 */
export function tryTake(path: string, own: Holder): boolean {
  if (!tryCreate(path, own) && !isOwnOrTakenOver(path, own)) return false
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

/** Removes a lock, or a mark, if it belongs to this holder. */
export function release(path: string, id: string): void {
  if (readLock(path)?.id === id) unlinkSync(path)
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
function tryCreate(path: string, own: Holder): boolean {
  try {
    const fd = openSync(path, 'wx', 0o600)
    try {
      writeFileSync(fd, `${JSON.stringify(own)}\n`)
    } finally {
      closeSync(fd)
    }
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

function isOwnOrTakenOver(path: string, own: Holder): boolean {
  const found = readLock(path)
  if (found === undefined) return false
  return found.id === own.id || (isAbandoned(found, own) && takeOver(found, own))
}

/**
 * The mark is itself a lock, named after the dead holder, so that contenders for the locks of different dead holders
 * never meet. The mark of a contender that died is taken over in turn. Only the process with the mark may touch the
 * lock of that dead holder.
 */
function takeOver(dead: FoundLock, own: Holder): boolean {
  const mark = `${dead.path}${MARK}${dead.id}`
  let isReplaced = false
  try {
    isReplaced = tryTake(mark, own) && readLock(dead.path)?.id === dead.id
    if (isReplaced) replace(dead.path, own)
  } catch (error) {
    // The first error says what is wrong. If the mark stays, the next holder removes it.
    if (tryReadLock(mark)?.id === own.id) tryUnlinkSync(mark)
    throw error
  }
  release(mark, own.id)
  return isReplaced
}

function replace(path: string, own: Holder): void {
  const replacement = temporaryName(path)
  try {
    tryCreate(replacement, own)
    renameSync(replacement, path)
  } finally {
    tryUnlinkSync(replacement)
  }
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
