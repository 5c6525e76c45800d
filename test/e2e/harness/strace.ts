import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { whyRightsAreLeftToCi } from '../../extent.ts'
import type { HostCopy } from './prepared-host.ts'
import type { SweepHost } from './sweep-hosts.ts'

/** The calls that decide which names and bytes survive, under their names on various architectures. */
export const NAME_CALLS = [
  ...['rename', 'renameat', 'renameat2', 'link', 'linkat', 'unlink', 'unlinkat', 'rmdir', 'mkdir', 'mkdirat'],
  ...['truncate', 'ftruncate', 'fsync', 'fdatasync', 'syncfs'],
]

/** One system call from an strace log. */
export interface SystemCall {
  name: string
  /** The arguments as strace prints them, with the paths of file descriptors. */
  args: string
  /** `?` or `unfinished` if the process died before the call returned. */
  result: string
  /**
   * The thread that makes the call: the action's main thread, the one thread that does its asynchronous file work, or a
   * child process of the action.
   */
  role: 'main' | 'worker' | 'child'
  /** The number of the call among those of its name and role, counted from 1 like strace's `when`. */
  nth: number
}

/** The reason why strace cannot trace here, for a test's `skip`; false if strace can. */
export function whyNoStrace(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  const { error, status, stderr } = spawnSync('strace', ['-f', '-o', '/dev/null', 'true'], { encoding: 'utf8' })
  if (error !== undefined) return `strace is not installed (${error.message})`
  return status === 0 ? false : `strace is not allowed to trace: ${stderr.trim()}`
}

/**
 * An environment in which one thread does all asynchronous file work of the action, so that the calls of that thread
 * can be counted.
 */
export const ONE_WORKER = { UV_THREADPOOL_SIZE: '1' }

interface Tracing {
  log: string
  /** The calls to trace; default NAME_CALLS. */
  calls?: readonly string[]
  /** Faults and the calls that they hit, in strace's own syntax, such as `fsync:error=EIO:when=3`. */
  inject?: readonly string[]
  /** The paths that a traced call must touch; default any. Of a rename, only the source counts. */
  paths?: readonly string[]
  /** The maximum number of characters that the trace shows of a text; default 0. */
  textLimit?: number
  /** True to trace only the main thread, so that its calls are counted alone. */
  mainOnly?: boolean
}

/**
 * The beginning of a command line that runs the action under strace. The caller appends the action's own command line.
 */
export function traceCommand(tracing: Tracing): string[] {
  const { log, calls = NAME_CALLS, inject = [], paths = [], textLimit = 0, mainOnly = false } = tracing
  const names = ['execve', ...calls].map(name => `?${name}`)
  return [
    'strace',
    ...(mainOnly ? [] : ['-f']),
    ...['-y', '-s', String(textLimit), '-o', log, '-e', `trace=${names.join(',')}`],
    ...paths.flatMap(path => ['-P', path]),
    ...inject.flatMap(how => ['-e', `inject=${how}`]),
  ]
}

/** Kills the process in place of a call: the signal is fatal, and the error prevents the call. */
export function killBefore(call: SystemCall): Pick<Tracing, 'inject' | 'mainOnly'> {
  return { inject: [`${call.name}:error=EINTR:signal=KILL:when=${call.nth}`], mainOnly: call.role === 'main' }
}

/** Makes a call fail with this error instead of running it. */
export function failWith(error: string, call: SystemCall): Pick<Tracing, 'inject' | 'mainOnly'> {
  return { inject: [`${call.name}:error=${error}:when=${call.nth}`], mainOnly: call.role === 'main' }
}

/** The calls in the order in which they began. */
export function readTrace(log: string): SystemCall[] {
  const lines = parseLines(readFileSync(log, 'utf8'))
  const main = lines.find(line => line.name === 'execve')?.thread
  const children = new Set(lines.filter(line => line.name === 'execve').map(line => line.thread))
  const counts = new Map<string, number>()
  return lines.map(({ thread, name, args, result }) => {
    const role = thread === main ? 'main' : children.has(thread) ? 'child' : 'worker'
    const nth = (counts.get(`${role} ${name}`) ?? 0) + 1
    counts.set(`${role} ${name}`, nth)
    return { name, args, result, role, nth }
  })
}

/**
 * A call without the texts that differ from run to run: ids, process numbers, times, lengths, random names, and these
 * folders.
 */
function describeCall({ role, name, args, nth }: SystemCall, folders: Readonly<Record<string, string>>): string {
  const placed = Object.entries(folders).reduce((text, [label, folder]) => text.replaceAll(folder, `<${label}>`), args)
  const timeless = placed
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, '<id>')
    .replaceAll(/\.\d+\.<id>\.tmp/g, '.<tmp>')
    .replaceAll(/[0-9a-f]{64}\.tree/g, '<record>.tree')
    .replaceAll(/(?:\d{6}-)?\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z/g, '<time>')
    .replaceAll(/(hub-deploy|commands)-\w{6}/g, '$1-<random>')
    .replaceAll(/\d+</g, '<')
    .replace(/^(.*journal\.jsonl>), \d+$/, '$1, <length>')
  // A removal visits the entries of a directory in no fixed order.
  const ordered = /^(unlink|rmdir)/.test(name)
    ? timeless.replace(/(staging\/|\/proc\/self\/fd\/)[^"]+/, '$1*')
    : timeless
  return `${role} ${name}(${ordered}) #${nth}`
}

interface TraceLine {
  thread: string
  name: string
  args: string
  result: string
}

/** If another thread's line cuts a call in two, the list has the call where it began, with the result from its end. */
function parseLines(text: string): TraceLine[] {
  const calls: TraceLine[] = []
  const unfinished = new Map<string, TraceLine>()
  for (const line of text.split('\n')) {
    const begun = parseBeginning(line)
    if (begun !== undefined) calls.push(begun)
    if (begun?.result === UNFINISHED) unfinished.set(begun.thread, begun)
    const [, thread = '', result] = /^(\d+) +<\.\.\. \w+ resumed>.*\) += (.*)$/.exec(line) ?? []
    const resumed = unfinished.get(thread)
    if (resumed !== undefined && result !== undefined) resumed.result = result
  }
  return calls
}

const UNFINISHED = 'unfinished'

/** `<thread> name(args) = result`, or `<thread> name(args <unfinished ...>`. */
function parseBeginning(line: string): TraceLine | undefined {
  const begun = /^(?:(\d+) +)?(\w+)\((.*?)(?: <unfinished \.\.\.>|\) += (.*))$/.exec(line)
  if (begun === null) return undefined
  const [, thread = '', name = '', args = '', result = UNFINISHED] = begun
  return { thread, name, args, result }
}

/**
 * Has strace tamper with the nth call of each of these names that touches the path. `how` is, for example,
 * `signal=KILL` or `error=ENOSPC`.
 */
export function tamper(path: string, names: string, how: string, nth: number | string = 1): Partial<ActionRun> {
  return through({ paths: [path], calls: names.split(','), inject: [`${names}:${how}:when=${nth}`] })
}

/**
 * Makes changes of names and sizes fail, as on a file system that has become read-only. Of each kind of call, the nth
 * and all later ones fail.
 */
export function goReadOnly(nth: number): Partial<ActionRun> {
  const names = 'rename,link,unlink,mkdir,rmdir,ftruncate'
  return through({ calls: names.split(','), inject: [`${names}:error=EROFS:when=${nth}+`] })
}

/** Tampers with the write of the nth record to a journal that already has its first record. */
export function tamperWithRecord(root: string, nth: number, how: string): Partial<ActionRun> {
  return tamper(journalOf(root), 'pwrite64', how, nth)
}

function journalOf(root: string): string {
  return join(root, '.hub-deploy/journal.jsonl')
}

/**
 * `record` is the number of a journal record. `undo` is the number of the first rename that hangs, among the renames of
 * `place` to another path. Both are counted from 1.
 */
interface CancelAndBlock {
  readonly place: string
  readonly record: number
  readonly undo: number
}

/**
 * Sends SIGINT as a journal record is written, and pauses for two minutes before each rename from number `undo`
 * onwards.
 */
export function cancelAndBlock(root: string, { place, record, undo }: CancelAndBlock): Partial<ActionRun> {
  const inject = [`pwrite64:signal=INT:when=${record}`, `rename:delay_enter=120000000:when=${undo}+`]
  return through({ paths: [journalOf(root), place], calls: ['pwrite64', 'rename'], inject })
}

function through(tracing: Omit<Tracing, 'log'>): Partial<ActionRun> {
  return { through: traceCommand({ log: '/dev/null', ...tracing }), env: ONE_WORKER }
}

/** One phase of an action on a host. */
export type Act<Host extends HostCopy = SweepHost> = (host: Host, run: Partial<ActionRun>) => Promise<ActionResult>

export interface TracedCall extends SystemCall {
  /** The call without the texts that differ from run to run. */
  text: string
}

export interface Traces<Host extends HostCopy = SweepHost> {
  run(
    host: Host,
    act: Act<Host>,
    tracing?: Omit<Tracing, 'log'>,
    env?: Record<string, string>,
  ): Promise<{ result: ActionResult; calls: readonly TracedCall[] }>
  close(): void
}

/** Runs actions under strace, with all asynchronous file work in one thread. `close` removes the trace logs. */
export function openTraces<Host extends HostCopy = SweepHost>(): Traces<Host> {
  const folder = mkdtempSync(join(tmpdir(), 'traces-'))
  return {
    async run(host, act, tracing = {}, env = {}) {
      const log = join(folder, host.name)
      const result = await act(host, { through: traceCommand({ log, ...tracing }), env: { ...ONE_WORKER, ...env } })
      const folders = { host: host.root, temp: host.workspace.temp }
      const calls = readTrace(log).map(call => ({ ...call, text: describeCall(call, folders) }))
      return { result, calls: calls.filter(({ name }) => name !== 'execve') }
    },
    close: () => rmSync(folder, { recursive: true, force: true }),
  }
}
