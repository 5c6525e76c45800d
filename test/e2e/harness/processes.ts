import { readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { ActionRun } from '../../../local/runner.ts'

/** When the runner sends SIGTERM to a step that it has cancelled with SIGINT, and when it kills it after that. */
const SIGTERM_AFTER_MS = 7_500
const SIGKILL_AFTER_MS = 2_500

/** Cancels a process as the runner cancels a step. */
export async function killAsTheRunnerDoes(pid: number): Promise<void> {
  process.kill(pid, 'SIGINT')
  await setTimeout(SIGTERM_AFTER_MS)
  if (!isRunning(pid)) return
  process.kill(pid, 'SIGTERM')
  await setTimeout(SIGKILL_AFTER_MS)
  if (isRunning(pid)) process.kill(pid, 'SIGKILL')
}

/** Acts on the process of a run, once, as soon as its log holds the text. */
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

/** The process that holds the lock of a host. */
export function readHolder(root: string): number {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/lock'), 'utf8')).pid
}

/** In a stand-in's script: notes the shell's own process beside the script. */
export const NOTE_PID = 'sh -c \'echo $PPID\' > "$(dirname "$0")/pid"'

/** What a stand-in on this PATH has noted; undefined when it has not. */
export function readNotedPid(path: string): number | undefined {
  try {
    return Number(readFileSync(join(path.split(delimiter)[0] as string, 'pid'), 'utf8'))
  } catch {
    return undefined
  }
}

/** Whether the process is there and is more than an ended one that nobody has waited for. */
export function isRunning(pid: number | undefined): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return !stat.slice(stat.lastIndexOf(')')).startsWith(') Z')
  } catch {
    return false
  }
}
