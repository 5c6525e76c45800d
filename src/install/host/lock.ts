import { randomUUID } from 'node:crypto'
import { dirname, join } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { type Clock, systemClock } from '../files/child-process.ts'
import { toHostError } from '../files/errors.ts'
import { ANSWER_TIMEOUT_MS, type KernelLockAttempt, readFreeKernelLock, tryKernelLock } from './kernel-lock.ts'
import {
  describeHolder,
  type Holder,
  isAbandoned,
  readLock,
  release,
  removeDeadMarks,
  tryReadLock,
  tryTake,
} from './lock-file.ts'
import { type ProcessIdentity, readOwnIdentity } from './process-identity.ts'

const POLL_MS = 250
const REPORT_EVERY_MS = 10_000
/** The name of a file that is never removed. Files whose name begins with the lock's name are. */
const KERNEL_LOCK = 'kernel-lock'

export interface LockRequest {
  /** Path of the lock file, in a directory of ours. */
  path: string
  /**
   * A file whose space the lock may take if the disk is full. If there is no such file, the lock becomes that file when
   * it is released.
   */
  reserve?: string
  timeoutMs: number
  runUrl: string | null
  /** The name and version to deploy, which other runs show while they wait. */
  deployment?: string | undefined
  /** Receives a line about the holder while this process waits. */
  log: (line: string) => void
  /** Receives a line about a lock file that cannot be removed when the lock is released. */
  onLeft?: (line: string) => void
  signal?: AbortSignal | undefined
  /** The process that takes the lock. Default: this process. */
  identity?: ProcessIdentity
}

export interface HeldLock {
  /**
   * Removes the lock file unless it is no longer ours, and releases the kernel lock. If the file cannot be read or
   * removed, the next run takes it over. Never throws.
   */
  release(): void
}

/**
 * Takes the lock of a project root. If another process has the lock, waits for up to `timeoutMs`. The lock consists of
 * a kernel lock, which ends with its holder, and a file that names the holder. A file whose holder is provably dead, or
 * whose content is garbage, is taken over at once. If no kernel lock is available, the file alone decides.
 *
 * Throws DeploymentError `locked` with the holder and the link to its run, `unsafe_host` as `tryKernelLock` and
 * `readLock` do, or a system error as `toHostError` returns it. Throws the signal's reason once the signal is aborted.
 */
export async function acquireLock(request: LockRequest, clock: Clock = systemClock): Promise<HeldLock> {
  const contender: Contender = { id: randomUUID(), kernel: 'busy' }
  try {
    const holder = await waitForTurn(request, contender, clock)
    removeDeadMarks(request.path, holder)
    return { release: () => giveBack(request, contender) }
  } catch (error) {
    giveBack({ ...request, onLeft: () => {} }, contender)
    request.signal?.throwIfAborted()
    throw toHostError(error, `taking the lock ${request.path}`)
  }
}

/**
 * Describes the process that has the lock of a project root. Returns undefined if the lock file names no holder, or a
 * holder that has provably ended. Does not wait for the lock, and writes nothing. Throws the signal's reason once the
 * signal is aborted.
 */
export async function describeLiveHolder(path: string, signal?: AbortSignal): Promise<string | undefined> {
  const found = readLock(path)
  if (found?.holder === undefined) return undefined
  const nothing = { kernel_lock: null, run_url: null, deployment: null, since: '' }
  const own: Holder = { ...readOwnIdentity(), id: randomUUID(), ...nothing }
  if (isAbandoned(found, own)) return undefined
  const probe = { path: kernelLockOf(path), timeoutMs: ANSWER_TIMEOUT_MS.least, signal }
  const free = await readFreeKernelLock(probe)
  return isAbandoned(found, { ...own, kernel_lock: free ?? null }) ? undefined : describeHolder(found.holder)
}

/**
 * Describes the holder that the lock file of a project root names; if the file names none, or cannot be read, says how
 * to find the holder. Never throws: the text is a part of messages about something else.
 */
export function describeOther(path: string): string {
  const holder = tryReadLock(path)?.holder
  if (holder !== undefined) return describeHolder(holder)
  return `a process that has not identified itself has the lock ("fuser ${kernelLockOf(path)}" finds the process)`
}

interface Contender {
  readonly id: string
  kernel: KernelLockAttempt
}

async function waitForTurn(request: LockRequest, contender: Contender, clock: Clock): Promise<Holder> {
  const { path, reserve, runUrl, deployment, signal, identity = readOwnIdentity() } = request
  const deadline = clock.now() + request.timeoutMs
  const pause = startWaiting(request, contender, { clock, deadline })
  for (;;) {
    signal?.throwIfAborted()
    if (contender.kernel === 'busy') {
      const timeoutMs = answerTimeoutMs(deadline - clock.now())
      contender.kernel = await tryKernelLock({ path: kernelLockOf(path), timeoutMs, signal })
    }
    const since = new Date().toISOString()
    const lock = { id: contender.id, kernel_lock: lockedFileOf(contender) }
    const own = { ...identity, ...lock, run_url: runUrl, deployment: deployment ?? null, since }
    if (contender.kernel !== 'busy' && tryTake(path, own, reserve)) return own
    await pause()
  }
}

interface Waiting {
  readonly clock: Clock
  /** On that clock. */
  readonly deadline: number
}

/** Returns a function that waits until the next attempt. The returned function throws `locked` once no time is left. */
function startWaiting(request: LockRequest, contender: Contender, { clock, deadline }: Waiting) {
  const { path, log, signal } = request
  let reportedAt = Number.NEGATIVE_INFINITY
  return async (): Promise<void> => {
    const now = clock.now()
    if (now >= deadline) throw lockedError(request, contender)
    if (now - reportedAt >= REPORT_EVERY_MS) {
      log(`Waiting for the lock of this host: ${describeOther(path)}. To go first, cancel that run.`)
      reportedAt = now
    }
    await clock.sleep(Math.min(POLL_MS, deadline - now), signal)
  }
}

function giveBack(
  { path, reserve, onLeft }: Pick<LockRequest, 'path' | 'reserve' | 'onLeft'>,
  { id, kernel }: Contender,
): void {
  try {
    try {
      release(path, id, reserve)
    } finally {
      if (typeof kernel === 'object') kernel.release()
    }
  } catch (error) {
    onLeft?.(`The lock stays until the next run takes it over: ${toHostError(error, `removing ${path}`).message}`)
  }
}

function lockedError({ path, timeoutMs }: LockRequest, { kernel }: Contender): DeploymentError {
  const gone = kernel === 'busy' ? '' : ` If that process is gone for good, remove ${path}.`
  return new DeploymentError(
    'locked',
    `Another deployment has locked this host and did not finish within ${Math.round(timeoutMs / 1000)} s (lock-timeout-seconds; in a post step, at most 5 s): ` +
      `${describeOther(path)}. Wait for that deployment, or cancel it.${gone}`,
  )
}

/** So that a wait ends at most one second after its deadline, even if `flock` hangs. */
function answerTimeoutMs(leftMs: number): number {
  return Math.min(Math.max(leftMs, ANSWER_TIMEOUT_MS.least), ANSWER_TIMEOUT_MS.most)
}

function lockedFileOf({ kernel }: Contender): string | null {
  return typeof kernel === 'object' ? kernel.id : null
}

function kernelLockOf(path: string): string {
  return join(dirname(path), KERNEL_LOCK)
}
