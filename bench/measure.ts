import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export interface Cost {
  readonly ms: number
  /** Peak resident memory of the largest process, in MB of 10^6 bytes; undefined if it cannot be measured. */
  readonly peakMb: number | undefined
}

export interface ProcessEnd {
  readonly exitCode: number | null
  readonly log: string
}

/** Starts a process with the command `through` in front, calls `onStart` once it runs, and resolves when it ends. */
export type Start = (through: readonly string[], onStart: () => void) => Promise<ProcessEnd>

const GNU_TIME = '/usr/bin/time'

/** Peak memory needs GNU time, which asks the kernel after the process has ended. */
export const canMeasureMemory = spawnSync(GNU_TIME, ['-f', '%M', 'true']).status === 0

/** Measures a process to its end, with a temporary file in `folder`. Throws, with the log, if the process fails. */
export async function measure(what: string, folder: string, start: Start): Promise<Cost> {
  const usage = join(folder, 'peak-kib')
  let startedAt = 0
  const { exitCode, log } = await start(canMeasureMemory ? [GNU_TIME, '-f', '%M', '-o', usage] : [], () => {
    startedAt = performance.now()
  })
  const ms = performance.now() - startedAt
  if (exitCode !== 0)
    throw new Error(
      `${what} ${exitCode === null ? 'was ended by a signal' : `failed with exit code ${exitCode}`}:\n${log}`,
    )
  return { ms, peakMb: canMeasureMemory ? (Number(readFileSync(usage, 'utf8')) * 1024) / 1e6 : undefined }
}
