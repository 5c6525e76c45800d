import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, existsSync, openSync, readSync } from 'node:fs'
import { delimiter, isAbsolute } from 'node:path'
import type { Readable } from 'node:stream'
import { setTimeout as startTimer } from 'node:timers'
import { setTimeout } from 'node:timers/promises'
import { ArtifactError, DeploymentError, errnoOf } from '../../core/errors.ts'
import { monotonicMs } from '../../core/log.ts'
import { CUT_MARK } from '../../core/text.ts'
import { isSystemError } from './errors.ts'

export interface ChildRequest {
  /** The program and its arguments; no shell. */
  command: readonly [string, ...string[]]
  env: Readonly<Record<string, string>>
  cwd?: string
  timeoutMs: number
  signal?: AbortSignal | undefined
  /** The time between an abort and SIGKILL for the group; default 2 s, because a cancelled run has 6 s. */
  abortGraceMs?: number
  /** Discards the output: reading it costs a millisecond. */
  isSilent?: true
  /** With `isSilent`: a descriptor of this process that the child gets as its descriptor 3. */
  descriptor?: number
  /**
   * Gives the child a pipe as its descriptor 3. The pipe closes when this process ends, however it ends, or when the
   * child has exited. When the child has exited, the other processes of its group are killed. Has no effect in
   * `runChild` with `isSilent`.
   */
  isTethered?: true
}

export type ChildEnd =
  | { kind: 'exited'; code: number; output: string; stdout: string }
  | { kind: 'signalled'; signal: string; output: string }
  | { kind: 'not_started'; error: Error }
  | { kind: 'timed_out'; output: string }

const KILL_AFTER_TERM_MS = { timeout: 5000, abort: 2000 }
const MAX_OUTPUT_BYTES = 2048
/** The wait before the second attempt to start a child. */
const RESTART_AFTER_MS = 100
/** For a PATH without any absolute folder. Without a PATH, some shells also search the current folder. */
const SYSTEM_PATH = '/usr/bin:/bin'
/**
 * The time that the output of an exited child may stay open, for example in a daemon that the child left behind, before
 * reading stops.
 */
const DRAIN_MS = 200

/**
 * Runs a program in its own process group, with /dev/null as stdin. Resolves when the program has exited, successfully
 * or not, or could not be started. After `timeoutMs`, sends SIGTERM to the group, and SIGKILL 5 s later or as soon as
 * the program has exited. When `signal` aborts, does the same, but with SIGKILL after `abortGraceMs`, and rejects with
 * the signal's reason. Keeps the first 2 KiB of stdout and stderr together, and, for callers that parse stdout, the
 * first 2 KiB of stdout alone. Longer output ends with a mark. Never blocks the event loop.
 */
export async function runChild(request: ChildRequest): Promise<ChildEnd> {
  request.signal?.throwIfAborted()
  const child = await startChild(request, stdioOf(request))
  if (child instanceof Error) return { kind: 'not_started', error: child }
  const streams = [child.stdout, child.stderr].filter(stream => stream !== null)
  const output = collectOutput(streams)
  const stdout = collectOutput(streams.slice(0, 1))
  const closed = new Promise(resolve => child.once('close', resolve))
  const exited = exitOf(child)
  const stop = stopOn(child.pid as number, request)
  const [code, signal] = await exited
  stop.clear()
  endTether(child)
  // Not referenced: once the output is closed, the timer has no reason to keep the process alive.
  await Promise.race([closed, setTimeout(DRAIN_MS, undefined, { ref: false })])
  for (const stream of streams) stream.destroy()
  request.signal?.throwIfAborted()
  if (stop.timedOut()) return { kind: 'timed_out', output: output() }
  return code === null
    ? { kind: 'signalled', signal: String(signal), output: output() }
    : { kind: 'exited', code, output: output(), stdout: stdout() }
}

/** A program whose whole stdout is read as it arrives. */
interface ReadRequest extends ChildRequest {
  /** A descriptor of this process that becomes the program's stdin; without it, stdin is /dev/null. */
  input?: number
}

interface ReadEnd<Read> {
  readonly end: ChildEnd
  /** The result of `consume`; undefined if the program did not start, or timed out before `consume` had a result. */
  readonly read: Read
}

/**
 * Runs a program as `runChild` does, but passes its stdout to `consume` and keeps only the output of stderr. If
 * `consume` reads slowly, the program has to wait. If `consume` throws, kills the whole group at once and throws the
 * same error, unless a cancel or the timeout came first.
 */
export async function readChild<Read>(
  request: ReadRequest,
  consume: (stdout: AsyncIterable<Buffer>) => Promise<Read>,
): Promise<ReadEnd<Read | undefined>> {
  request.signal?.throwIfAborted()
  const tether = request.isTethered ? (['pipe'] as const) : []
  const child = await startChild(request, [request.input ?? 'ignore', 'pipe', 'pipe', ...tether])
  if (child instanceof Error) return { end: { kind: 'not_started', error: child }, read: undefined }
  const exited = exitOf(child)
  const { stdout, stderr } = child as ChildProcess & Record<'stdout' | 'stderr', Readable>
  const output = collectOutput([stderr])
  const pid = child.pid as number
  const stop = stopOn(pid, request)
  try {
    const read = await consume(stdout)
    const [code, signal] = await exited
    request.signal?.throwIfAborted()
    return { end: endOf([code, signal], { timedOut: stop.timedOut(), output: output() }), read }
  } catch (error) {
    signalGroup(pid, 'SIGKILL')
    await exited
    request.signal?.throwIfAborted()
    if (stop.timedOut()) return { end: { kind: 'timed_out', output: output() }, read: undefined }
    throw error
  } finally {
    stop.clear()
    endTether(child)
    for (const stream of [stdout, stderr]) stream.destroy()
  }
}

function endTether(child: ChildProcess): void {
  const tether = child.stdio[3]
  if (!tether) return
  tether.on('error', () => {}).destroy()
  signalGroup(child.pid as number, 'SIGKILL')
}

function endOf(
  [code, signal]: [number | null, NodeJS.Signals | null],
  { timedOut, output }: { timedOut: boolean; output: string },
): ChildEnd {
  if (timedOut) return { kind: 'timed_out', output }
  return code === null
    ? { kind: 'signalled', signal: String(signal), output }
    : { kind: 'exited', code, output, stdout: '' }
}

/**
 * Returns the environment for a child process: this process's `PATH`, `HOME`, `LANG` and `TZ`, and `extra`. Leaves out
 * everything else, such as the runner's inputs, tokens and tracking id. Also leaves out each folder of `PATH` that is
 * not absolute: an empty or relative one means the child's current folder, which may belong to somebody else.
 */
export function allowedEnvironment(extra: Readonly<Record<string, string>> = {}): Record<string, string> {
  const inherited = ['PATH', 'HOME', 'LANG', 'TZ'].flatMap(name => {
    const value = process.env[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  const all: Record<string, string> = { ...Object.fromEntries(inherited), ...extra }
  const folders = (all['PATH'] ?? '').split(delimiter).filter(folder => folder.startsWith('/'))
  return { ...all, PATH: folders.join(delimiter) || SYSTEM_PATH }
}

function stdioOf({ isSilent, descriptor, isTethered }: ChildRequest): StdioOptions {
  if (!isSilent) return isTethered ? ['ignore', 'pipe', 'pipe', 'pipe'] : ['ignore', 'pipe', 'pipe']
  return descriptor === undefined ? 'ignore' : ['ignore', 'ignore', 'ignore', descriptor]
}

/**
 * Returns the system's error if the program could not be started, also not at the second attempt: the system may lack
 * processes, memory or descriptors for a moment. No event of the child comes between its start and the caller's next
 * line.
 */
async function startChild(request: ChildRequest, stdio: StdioOptions): Promise<ChildProcess | Error> {
  const child = await tryToStart(request, stdio)
  if (!(child instanceof Error) || errnoOf(child) === 'ENOENT') return child
  await setTimeout(RESTART_AFTER_MS)
  return await tryToStart(request, stdio)
}

/** Reads nothing from the child before it has started: without a free descriptor, a child has no streams. */
async function tryToStart({ command, env, cwd }: ChildRequest, stdio: StdioOptions): Promise<ChildProcess | Error> {
  const [program, ...args] = command
  try {
    const child = spawn(program, args, {
      env: { ...env },
      stdio,
      detached: true,
      ...(cwd === undefined ? {} : { cwd }),
    })
    await once(child, 'spawn')
    return child
  } catch (error) {
    if (!(error instanceof Error && isSystemError(error))) throw error
    return errnoOf(error) === 'ENOENT' ? (withoutInterpreter(program) ?? error) : error
  }
}

const MAX_SHEBANG_BYTES = 256

/** Explains why a script that exists is reported as absent: its interpreter is absent. */
function withoutInterpreter(script: string): Error | undefined {
  if (!isAbsolute(script)) return undefined
  try {
    const start = Buffer.alloc(MAX_SHEBANG_BYTES)
    const fd = openSync(script, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      readSync(fd, start)
    } finally {
      closeSync(fd)
    }
    const [, interpreter] = /^#! *([^ \n\0]+)/.exec(start.toString('latin1')) ?? []
    if (interpreter === undefined || existsSync(interpreter)) return undefined
    const cause = interpreter.endsWith('\r')
      ? 'the lines of the script end in CRLF, so convert them to LF'
      : 'install it'
    return new Error(`its interpreter ${JSON.stringify(interpreter)} does not exist: ${cause}`)
  } catch {
    return undefined
  }
}

function exitOf(child: ChildProcess): Promise<[number | null, NodeJS.Signals | null]> {
  return new Promise(resolve => child.once('exit', (code, signal) => resolve([code, signal])))
}

function collectOutput(streams: readonly NodeJS.ReadableStream[]): () => string {
  const chunks: Buffer[] = []
  let size = 0
  for (const stream of streams) {
    stream.on('data', (chunk: Buffer) => {
      if (size < MAX_OUTPUT_BYTES) chunks.push(chunk.subarray(0, MAX_OUTPUT_BYTES - size))
      size += chunk.length
    })
    stream.on('error', () => {})
  }
  return () => {
    const bytes = Buffer.concat(chunks)
    if (size <= MAX_OUTPUT_BYTES) return bytes.toString('utf8')
    // Drops a character that the cut has split.
    return `${new TextDecoder().decode(bytes, { stream: true })}${CUT_MARK}`
  }
}

function stopOn(pid: number, request: ChildRequest): { clear(): void; timedOut(): boolean } {
  let timedOut = false
  const killTimers: NodeJS.Timeout[] = []
  const stop = (killAfterMs: number): void => {
    signalGroup(pid, 'SIGTERM')
    killTimers.push(startTimer(() => signalGroup(pid, 'SIGKILL'), killAfterMs))
  }
  const stopAborted = (): void => stop(request.abortGraceMs ?? KILL_AFTER_TERM_MS.abort)
  const timer = startTimer(() => {
    timedOut = true
    stop(KILL_AFTER_TERM_MS.timeout)
  }, request.timeoutMs)
  request.signal?.addEventListener('abort', stopAborted, { once: true })
  if (request.signal?.aborted) stopAborted()
  return {
    timedOut: () => timedOut,
    clear() {
      clearTimeout(timer)
      for (const killTimer of killTimers) clearTimeout(killTimer)
      if (killTimers.length > 0) signalGroup(pid, 'SIGKILL')
      request.signal?.removeEventListener('abort', stopAborted)
    },
  }
}

function signalGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal)
  } catch {
    // The group has exited already, or runs as another user, for example with sudo.
  }
}

/**
 * The runner sends SIGTERM 7.5 s after its SIGINT. The work after a cancel ends within 6 s, or is left to the post
 * step.
 */
const MS_AFTER_CANCEL = { comparing: 2500, restoring: 3500, reporting: 5000 }

/** The limits for the work after a cancel. Without a cancel, none of these signals is ever aborted. */
export interface Grace {
  /** Aborted as soon as the run is cancelled: for work that can be done later. */
  readonly cancelled: AbortSignal
  /** For comparing restored files with their record. */
  readonly comparing: AbortSignal
  /** For restoring services. */
  readonly restoring: AbortSignal
  /** For the reports to the hub. */
  readonly reporting: AbortSignal
}

export function startGrace(cancelled: AbortSignal, times: typeof MS_AFTER_CANCEL = MS_AFTER_CANCEL): Grace {
  const late = new DeploymentError('cancelled', 'The run was cancelled, and no time was left for this work.')
  const unanswered = new ArtifactError('timeout', 'The hub did not answer within the time that a cancelled run has.')
  return {
    cancelled,
    comparing: abortLater(cancelled, times.comparing, late),
    restoring: abortLater(cancelled, times.restoring, late),
    reporting: abortLater(cancelled, times.reporting, unanswered),
  }
}

/** Returns the limits of a run that nobody can cancel. */
export function endlessGrace(): Grace {
  return startGrace(new AbortController().signal)
}

function abortLater(cancelled: AbortSignal, ms: number, reason: Error): AbortSignal {
  const controller = new AbortController()
  // Not referenced: the timer must not keep alive a process that has ended its work.
  const start = (): void => void startTimer(() => controller.abort(reason), ms).unref()
  if (cancelled.aborted) start()
  else cancelled.addEventListener('abort', start, { once: true })
  return controller.signal
}

/** Time that only moves forward, even if somebody changes the host's clock. */
export interface Clock {
  /** Milliseconds since a fixed moment. */
  now(): number
  /** Waits for this many milliseconds; rejects with the signal's reason once the signal is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

export const systemClock: Clock = {
  now: monotonicMs,
  async sleep(ms, signal) {
    try {
      await setTimeout(ms, undefined, signal === undefined ? {} : { signal })
    } catch (error) {
      signal?.throwIfAborted()
      throw error
    }
  },
}
