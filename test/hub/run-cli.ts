import { execFile } from 'node:child_process'
import { resolve } from 'node:path'
import { format } from 'node:util'
import { runCommandLine } from '../../hub/commands/hub.ts'
import { COMPILE_CACHE } from '../compile-cache.ts'
import { HANG_LIMIT_MS } from '../extent.ts'
import { SIGNING_SECRET } from './running-hub.ts'

export const CLI = resolve(import.meta.dirname, '../../hub/cli.ts')

export interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/**
 * Runs a command of the hub as a process, with a signing secret in the variable HUB_TEST_SECRET. Ends the process if it
 * hangs.
 */
export function hubProcess(...args: string[]): Promise<Ended> {
  const env = { ...process.env, HUB_TEST_SECRET: SIGNING_SECRET, NODE_COMPILE_CACHE: COMPILE_CACHE }
  return new Promise(resolved => {
    execFile(process.execPath, [CLI, ...args], { env, timeout: HANG_LIMIT_MS }, (error, stdout, stderr) =>
      resolved({ code: typeof error?.code === 'number' ? error.code : error ? -1 : 0, stdout, stderr }),
    )
  })
}

let running: Promise<unknown> = Promise.resolve()

/**
 * Runs a command in this process, which takes a hundredth of the time. Commands run one after the other, because they
 * all share one console.
 */
export function hub(...args: string[]): Promise<Ended> {
  const ended = running.then(() => runHere(args))
  running = ended
  return ended
}

async function runHere(args: string[]): Promise<Ended> {
  const { log, error } = console
  const printed = { stdout: '', stderr: '' }
  const into =
    (stream: keyof typeof printed) =>
    (...values: unknown[]) => {
      printed[stream] += `${format(...values)}\n`
    }
  process.env['HUB_TEST_SECRET'] = SIGNING_SECRET
  Object.assign(console, { log: into('stdout'), error: into('stderr') })
  try {
    return { code: await runCommandLine(args), ...printed }
  } finally {
    Object.assign(console, { log, error })
  }
}
