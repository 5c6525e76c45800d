import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export interface Cost {
  readonly ms: number
  /** Peak resident memory of the largest process, in MB of 10^6 bytes; undefined where it cannot be measured. */
  readonly peakMb: number | undefined
}

export interface Ended {
  readonly exitCode: number | null
  readonly log: string
}

/** Starts a process by way of `through`, calls `onStart` as soon as it runs, and resolves when it has ended. */
export type Start = (through: readonly string[], onStart: () => void) => Promise<Ended>

const GNU_TIME = '/usr/bin/time'

/** Whether peak memory can be measured: by GNU time, which asks the kernel when the process has ended. */
export const canMeasureMemory = spawnSync(GNU_TIME, ['-f', '%M', 'true']).status === 0

/** Runs a process to its end. Throws, with its log, when it fails; `folder` is for a file of the measurement's own. */
export async function measure(what: string, folder: string, start: Start): Promise<Cost> {
  const usage = join(folder, 'peak-kib')
  let startedAt = 0
  const { exitCode, log } = await start(canMeasureMemory ? [GNU_TIME, '-f', '%M', '-o', usage] : [], () => {
    startedAt = performance.now()
  })
  const ms = performance.now() - startedAt
  if (exitCode !== 0) throw new Error(`${what} failed with exit code ${exitCode}:\n${log}`)
  return { ms, peakMb: canMeasureMemory ? (Number(readFileSync(usage, 'utf8')) * 1024) / 1e6 : undefined }
}
