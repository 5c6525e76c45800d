import { createHash, randomUUID } from 'node:crypto'
import { linkSync, readdirSync, readFileSync, renameSync, unlinkSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { ownerOfTemporary, temporaryName } from '../files/durable-files.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { toHostError } from '../files/system-errors.ts'
import { hearSignals } from '../files/time-slice.ts'
import { isProvablyDead, type ProcessIdentity, pidExists, readOwnIdentity } from './process-identity.ts'

const POLL_MS = 250
const TELL_EVERY_MS = 10_000
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

/** Of another host, whose lock may be written by another version of this action: only where it is must be known. */
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
  /** Told who holds the lock while we wait. */
  log: (line: string) => void
  signal?: AbortSignal | undefined
}

export interface HeldLock {
  /** Gives the lock back; does nothing when it is not ours any more. One that cannot be removed is taken over by the next run. */
  release(): void
}

/**
 * Takes the lock of a project root, waiting up to `timeoutMs` for its holder. A lock whose holder is provably dead,
 * or whose content is garbage, is taken over at once; one that names another host never. Losing a race never harms the winner:
 * only who created the one take-over mark of a dead holder may replace its lock.
 * Throws DeploymentError `locked` with the holder and its link, or `host_not_writable` / `disk_full`; the signal's reason once it is aborted.
 */
export async function acquireLock(request: LockRequest): Promise<HeldLock> {
  const own: OwnHolder = {
    id: randomUUID(),
    ...readOwnIdentity(),
    run_url: request.runUrl,
    since: new Date().toISOString(),
  }
  const candidate = temporaryName(request.path)
  try {
    // Not synced: what a power failure leaves of it is of another boot, or garbage, and taken over either way.
    writeFileSync(candidate, `${JSON.stringify(own)}\n`, { flag: 'wx', mode: 0o600 })
    await waitForTurn(request, candidate, own)
  } catch (error) {
    request.signal?.throwIfAborted()
    throw toHostError(error, `taking the lock ${request.path}`)
  } finally {
    tryUnlinkSync(candidate)
  }
  return { release: () => giveBack(request, own.id) }
}

/**
 * Removes what killed processes left beside a lock: take-over marks, and the files with which they waited; only who holds
 * the lock may. Those of a process that may live, on another host or in another pid namespace, stay. What cannot be
 * removed harms nobody and is tried again by the next run.
 */
export function removeDeadMarks(path: string): void {
  const own = readOwnIdentity()
  for (const name of readdirSync(dirname(path))) {
    if (!name.startsWith(`${basename(path)}.`)) continue
    const beside = join(dirname(path), name)
    const found = readLock(beside)
    if (found !== undefined && isLeftOver(name, found, own)) tryUnlinkSync(beside)
  }
}

function isLeftOver(name: string, found: FoundLock, own: ProcessIdentity): boolean {
  const writer = ownerOfTemporary(name)
  if (writer === undefined || found.holder !== undefined) return isAbandoned(found, own)
  // Not garbage for certain: its process may be just writing it.
  return !pidExists(writer)
}

async function waitForTurn(request: LockRequest, candidate: string, own: OwnHolder): Promise<void> {
  const deadline = Date.now() + request.timeoutMs
  let toldAt = Number.NEGATIVE_INFINITY
  for (;;) {
    request.signal?.throwIfAborted()
    if (tryTake(request.path, candidate, own)) return
    const found = readLock(request.path)
    if (found === undefined) {
      // Just given back, or a name that leads nowhere.
      await hearSignals()
      continue
    }
    if (Date.now() >= deadline) throw lockedError(found, request)
    if (Date.now() - toldAt >= TELL_EVERY_MS) {
      request.log(`Waiting for the lock of this host: ${describeHolder(found)}.`)
      toldAt = Date.now()
    }
    await setTimeout(Math.min(POLL_MS, Math.max(1, deadline - Date.now())), undefined, { signal: request.signal })
  }
}

/** One attempt: an atomic link where nothing is, else the take-over of a dead holder. */
function tryTake(path: string, candidate: string, own: OwnHolder): boolean {
  if (linkIfAbsentSync(candidate, path)) return true
  const found = readLock(path)
  if (found === undefined || !isAbandoned(found, own)) return false
  return takeOver(path, found, candidate, own)
}

/**
 * The mark is itself a lock, named after the dead holder, so that contenders of different dead holders never meet and
 * a contender that died holding it is taken over in turn. Holding it, nobody else may touch the lock of that holder.
 */
function takeOver(path: string, dead: FoundLock, candidate: string, own: OwnHolder): boolean {
  const mark = `${path}${MARK}${dead.id}`
  if (!tryTake(mark, candidate, own)) return false
  try {
    if (readLock(path)?.id !== dead.id) return false
    const replacement = temporaryName(path)
    linkSync(candidate, replacement)
    renameSync(replacement, path)
    return true
  } finally {
    release(mark, own.id)
  }
}

interface FoundLock {
  id: string
  /** Undefined when the content is garbage. */
  holder: OwnHolder | ForeignHolder | undefined
}

function readLock(path: string): FoundLock | undefined {
  const text = readIfPresentSync(path)
  if (text === undefined) return undefined
  const holder = parseHolder(text)
  return { id: holder?.id ?? createHash('sha256').update(text).digest('hex').slice(0, 32), holder }
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

/** Nothing can be proved of a holder of which only the host is known. */
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
  if (holder === undefined) return 'its content is garbage'
  const where = `process ${holder.pid ?? '(unknown)'} on ${cleanForeignText(holder.hostname, 100)}`
  const run = holder.run_url === null ? '' : `, ${cleanForeignText(holder.run_url, 300)}`
  return `${where} holds it since ${cleanForeignText(holder.since ?? 'an unknown time', 40)}${run}`
}

function lockedError(found: FoundLock, request: LockRequest): DeploymentError {
  const waited = `${Math.round(request.timeoutMs / 1000)} s`
  return new DeploymentError(
    'locked',
    `Another deployment holds this host and did not finish within ${waited} (lock-timeout-seconds): ${describeHolder(found)}. ` +
      `Wait for it or cancel it; if that host is gone for good, remove ${request.path}.`,
  )
}
