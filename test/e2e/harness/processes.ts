import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import { after, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import type { ActionRun } from '../../../local/runner.ts'
import { waitUntil } from '../../clocks.ts'

/** To cancel a step, the runner sends SIGINT, SIGTERM after the first of these times, and SIGKILL after the second. */
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
  // The tracer may hold the process in a system call; the process can then die only once the tracer has ended.
  if (tracer > 0) signal(tracer, 'SIGKILL')
}

/** The id of the process that traces this process; 0 if no process does. */
function readTracer(pid: number): number {
  try {
    return Number(/^TracerPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])
  } catch {
    return 0
  }
}

/** Sends a signal. Returns false if the process has already ended. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    return false
  }
}

/** Settings with which a run calls `act` once, with its process id, as soon as its log contains the text. */
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

/** The id of the process that has the lock of a host. */
export function readHolder(root: string): number {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/lock'), 'utf8')).pid
}

/** In a stand-in's script: writes the shell's own process id to a file next to the script. */
export const NOTE_PID = 'sh -c \'echo $PPID\' > "$(dirname "$0")/pid"'
/** In another process of the same script: waits for that file. */
export const AWAIT_PID = 'until [ -s "$(dirname "$0")/pid" ]; do sleep 0.02; done'

/** True if a stand-in on this PATH has written its process id. */
export function isNoted(path: string): boolean {
  const file = join(path.split(delimiter)[0] as string, 'pid')
  return existsSync(file) && readFileSync(file, 'utf8').endsWith('\n')
}

/** The process id that a stand-in on this PATH has written. */
export function readNotedPid(path: string): number {
  return readPid(join(path.split(delimiter)[0] as string, 'pid'))
}

/** Reads a process id from a file. Throws if the file contains none. */
export function readPid(path: string): number {
  const pid = Number(readFileSync(path, 'utf8'))
  if (pid > 0) return pid
  throw new Error(`${path} contains no process id.`)
}

/** Resolves when the process has ended. On a busy machine, a process ends some time after the fatal signal. */
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

export const RECOVER = join(resolve(import.meta.dirname, '../../..'), 'dist/recover.js')

/** Runs `dist/recover.js` as the system does at boot: with PATH as the only environment variable. */
export function runRecover(args: readonly string[], path = process.env['PATH']): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, [RECOVER, ...args], { encoding: 'utf8', cwd: '/', env: { PATH: path } })
}

/** A folder that only root and this user can change, unlike every folder below /tmp. Removed after all tests. */
export function openSafeFolder(): string {
  const folder = mkdtempSync(join(homedir(), '.hub-deploy-test-'))
  after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Writes a host config that `recover.js` accepts, and returns its path. */
export function writeSafeHostConfig(folder: string, text: string): string {
  const path = join(folder, 'host-config.yaml')
  writeFileSync(path, text, { mode: 0o600 })
  return path
}

/**
 * A PATH on which a shell script takes the place of the program of that name. Each deployment that installs a version
 * runs `sync -f <staged tree>`, after everything is staged and before anything installed is changed.
 */
export function standIn(t: TestContext, name: string, script: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'stand-in-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  return [folder, process.env['PATH']].join(delimiter)
}
