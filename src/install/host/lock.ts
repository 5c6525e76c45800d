import { createHash, randomUUID } from 'node:crypto'
import { linkSync, readdirSync, readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { type Clock, systemClock } from '../files/clock.ts'
import { ownerOfTemporary, temporaryName } from '../files/durable-files.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { toHostError } from '../files/system-errors.ts'
import { hearSignals } from '../files/time-slice.ts'
import { isProvablyDead, type ProcessIdentity, pidExists, readOwnIdentity } from './process-identity.ts'

const POLL_MS = 250
const REPORT_EVERY_MS = 10_000
const MARK = '.takeover-'

const ownSchema = z.object({
  id: z.string().check(z.regex(/^[0-9a-f-]{36}$/)),
  pid: z.int().check(z.positive()),
  start_time: z.nullable(z.string()),
  boot_id: z.nullable(z.string()),
  pid_namespace: z.nullable(z.string()),
  hostname: z.string(),
  run_url: z.nullable(z.string()),
  since: z.string(),
})
type OwnHolder = z.infer<typeof ownSchema>

/** On another host, where another version of this action may have written the lock: only the host must be known. */
const foreignSchema = z.lazy(() =>
  z.object({
    id: z.catch(z.nullable(ownSchema.shape.id), null),
    pid: z.catch(z.nullable(ownSchema.shape.pid), null),
    hostname: z.string().check(z.refine(name => name !== hostname())),
    run_url: z.catch(z.nullable(z.string()), null),
    since: z.catch(z.nullable(z.string()), null),
  }),
)
type ForeignHolder = z.infer<typeof foreignSchema>

export interface LockRequest {
  /** Path of the lock file, in a directory of ours. */
  path: string
  timeoutMs: number
  runUrl: string | null
  /** Receives a line about the holder while this process waits. */
  log: (line: string) => void
  signal?: AbortSignal | undefined
}

export interface HeldLock {
  /** Does nothing when the lock is not ours any more. If the lock cannot be removed, the next run takes it over. */
  release(): void
}

/**
 * Takes the lock of a project root, waiting up to `timeoutMs` for its holder. A lock whose holder is provably dead, or
 * whose content is garbage, is taken over at once; one that names another host never. Losing a race never harms the
 * winner: only the process that created the one take-over mark of a dead holder may replace its lock.
 * Throws DeploymentError `locked` with the holder and its link, or `host_not_writable` / `disk_full`; the signal's
 * reason once it is aborted.
 */
export async function acquireLock(request: LockRequest, clock: Clock = systemClock): Promise<HeldLock> {
  const holder: OwnHolder = {
    id: randomUUID(),
    ...readOwnIdentity(),
    run_url: request.runUrl,
    since: new Date().toISOString(),
  }
  const contender = { holder, file: temporaryName(request.path) }
  try {
    // Not synced: what a power failure leaves of it is of another boot, or garbage, and taken over either way.
    writeFileSync(contender.file, `${JSON.stringify(holder)}\n`, { flag: 'wx', mode: 0o600 })
    await waitForTurn(request, contender, clock)
  } catch (error) {
    request.signal?.throwIfAborted()
    throw toHostError(error, `taking the lock ${request.path}`)
  } finally {
    tryUnlinkSync(contender.file)
  }
  return { release: () => giveBack(request, holder.id) }
}

/**
 * Removes what killed processes left next to a lock: take-over marks, and the files of contenders. The caller holds
 * the lock. Leaves the files of processes that may be alive, on another host or in another pid namespace. A file that
 * cannot be removed does no harm; the next run tries again.
 */
export function removeDeadMarks(path: string): void {
  const own = readOwnIdentity()
  for (const name of readdirSync(dirname(path))) {
    if (!name.startsWith(`${basename(path)}.`)) continue
    const found = readLock(join(dirname(path), name))
    if (found !== undefined && isLeftOver(found, own)) tryUnlinkSync(found.path)
  }
}

function isLeftOver(found: FoundLock, own: ProcessIdentity): boolean {
  const writer = ownerOfTemporary(basename(found.path))
  if (writer === undefined || found.holder !== undefined) return isAbandoned(found, own)
  // Garbage may be what its process is still writing.
  return !pidExists(writer)
}

/** A process that wants the lock, with the file that becomes the lock by a link. */
interface Contender {
  readonly holder: OwnHolder
  readonly file: string
}

async function waitForTurn(request: LockRequest, contender: Contender, clock: Clock): Promise<void> {
  const deadline = clock.now() + request.timeoutMs
  let reportedAt = Number.NEGATIVE_INFINITY
  for (;;) {
    request.signal?.throwIfAborted()
    if (tryTake(request.path, contender)) return
    const found = readLock(request.path)
    if (found === undefined) {
      // Just released, or a dangling symlink.
      await hearSignals()
      continue
    }
    const now = clock.now()
    if (now >= deadline) throw lockedError(found, request.timeoutMs)
    if (now - reportedAt >= REPORT_EVERY_MS) {
      request.log(`Waiting for the lock of this host: ${describeHolder(found)}.`)
      reportedAt = now
    }
    await clock.sleep(Math.min(POLL_MS, Math.max(1, deadline - now)), request.signal)
  }
}

/** One attempt: an atomic link if there is no lock, else the take-over of a dead holder. */
function tryTake(path: string, contender: Contender): boolean {
  if (linkIfAbsentSync(contender.file, path)) return true
  const found = readLock(path)
  if (found === undefined || !isAbandoned(found, contender.holder)) return false
  return takeOver(found, contender)
}

/**
 * The mark is itself a lock, named after the dead holder, so that contenders for different dead holders never meet, and
 * the mark of a contender that died is taken over in turn. Only the process with the mark may touch that holder's lock.
 */
function takeOver(dead: FoundLock, contender: Contender): boolean {
  const mark = `${dead.path}${MARK}${dead.id}`
  if (!tryTake(mark, contender)) return false
  try {
    if (readLock(dead.path)?.id !== dead.id) return false
    const replacement = temporaryName(dead.path)
    linkSync(contender.file, replacement)
    renameSync(replacement, dead.path)
    return true
  } finally {
    release(mark, contender.holder.id)
  }
}

interface FoundLock {
  path: string
  id: string
  /** Undefined when the content is garbage. */
  holder: OwnHolder | ForeignHolder | undefined
}

function readLock(path: string): FoundLock | undefined {
  const text = readIfPresentSync(path)
  if (text === undefined) return undefined
  const holder = parseHolder(text)
  return { path, id: holder?.id ?? createHash('sha256').update(text).digest('hex').slice(0, 32), holder }
}

function readIfPresentSync(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}

function parseHolder(text: string): FoundLock['holder'] {
  try {
    return z.union([ownSchema, foreignSchema]).parse(JSON.parse(text))
  } catch {
    return undefined
  }
}

/** If only a holder's host is known, it cannot be proved dead. */
function isAbandoned({ holder }: FoundLock, own: ProcessIdentity): boolean {
  if (holder === undefined) return true
  return 'boot_id' in holder && isProvablyDead(holder, own)
}

function linkIfAbsentSync(from: string, to: string): boolean {
  try {
    linkSync(from, to)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}

function giveBack({ path, log }: LockRequest, id: string): void {
  try {
    release(path, id)
  } catch (error) {
    log(`The lock stays until the next run takes it over: ${toHostError(error, `removing ${path}`).message}`)
  }
}

function release(path: string, id: string): void {
  if (readLock(path)?.id === id) unlinkSync(path)
}

function describeHolder({ holder }: FoundLock): string {
  if (holder === undefined) return 'its content is damaged'
  const where = `process ${holder.pid ?? '(unknown)'} on ${cleanForeignText(holder.hostname, 100)}`
  const run = holder.run_url === null ? '' : `, ${cleanForeignText(holder.run_url, 300)}`
  return `${where} has held it since ${cleanForeignText(holder.since ?? 'an unknown time', 40)}${run}`
}

function lockedError(found: FoundLock, timeoutMs: number): DeploymentError {
  return new DeploymentError(
    'locked',
    `Another deployment has locked this host and did not finish within ${Math.round(timeoutMs / 1000)} s (lock-timeout-seconds): ` +
      `${describeHolder(found)}. Wait for it or cancel it. If that host is gone for good, remove ${found.path}.`,
  )
}
