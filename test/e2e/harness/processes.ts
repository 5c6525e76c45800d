import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { ActionRun } from '../../../local/runner.ts'
import { waitUntil } from '../../install/wait-until.ts'

/** The times after which the runner sends SIGTERM to a step that it has cancelled with SIGINT, and then kills it. */
const SIGTERM_AFTER_MS = 7_500
const SIGKILL_AFTER_MS = 2_500

/** Cancels a process as the runner cancels a step. */
export async function killAsTheRunnerDoes(pid: number): Promise<void> {
  signal(pid, 'SIGINT')
  await setTimeout(SIGTERM_AFTER_MS)
  if (!signal(pid, 'SIGTERM')) return
  await setTimeout(SIGKILL_AFTER_MS)
  const tracer = readTracer(pid)
  signal(pid, 'SIGKILL')
  // The tracer may hold the process in a system call; it can then die only once the tracer has ended.
  if (tracer > 0) signal(tracer, 'SIGKILL')
}

/** The process that traces another one; 0 if there is none. */
function readTracer(pid: number): number {
  try {
    return Number(/^TracerPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])
  } catch {
    return 0
  }
}

/** Returns false if the process has ended already. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    return false
  }
}

/** Acts once on the process of a run, as soon as its log contains the text. */
export function onceInLog(text: string, act: (pid: number) => unknown): Partial<ActionRun> {
  let pid: number | undefined
  let log = ''
  return {
    onStart(started) {
      pid = started
    },
    onLog(more) {
      log += more
      if (pid === undefined || !log.includes(text)) return
      void act(pid)
      pid = undefined
    },
  }
}

/** The process that has the lock of a host. */
export function readHolder(root: string): number {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/lock'), 'utf8')).pid
}

/** The process of the one deployment that has begun but does not have the host yet. */
export function readBegun(root: string): number {
  const own = join(root, '.hub-deploy')
  const [name = ''] = readdirSync(own).filter(name => name.startsWith('begun-'))
  return JSON.parse(readFileSync(join(own, name), 'utf8').split('\n', 1)[0] ?? '').process.pid
}

/** In a stand-in's script: notes the shell's own process next to the script. */
export const NOTE_PID = 'sh -c \'echo $PPID\' > "$(dirname "$0")/pid"'
/** In another process of the same script: waits for that note. */
export const AWAIT_PID = 'until [ -s "$(dirname "$0")/pid" ]; do sleep 0.02; done'

/** True if a stand-in on this PATH has noted its process. */
export function isNoted(path: string): boolean {
  const file = join(path.split(delimiter)[0] as string, 'pid')
  return existsSync(file) && readFileSync(file, 'utf8').endsWith('\n')
}

/** The process that a stand-in on this PATH has noted. */
export function readNotedPid(path: string): number {
  return readPid(join(path.split(delimiter)[0] as string, 'pid'))
}

/** Throws if the file contains no process id. */
export function readPid(path: string): number {
  const pid = Number(readFileSync(path, 'utf8'))
  if (pid > 0) return pid
  throw new Error(`${path} holds no process id.`)
}

/** Resolves when the process has ended, which on a busy machine is later than the signal that ends it. */
export async function waitForEnd(pid: number): Promise<void> {
  await waitUntil(`process ${pid} has ended`, () => !isRunning(pid))
}

/** True if the process exists and is not a zombie. */
export function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return !/^\) [ZX]/.test(stat.slice(stat.lastIndexOf(')')))
  } catch {
    return false
  }
}
