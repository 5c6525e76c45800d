import { spawnSync } from 'node:child_process'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
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

/** The fixed cost of every run, before the action does anything. */
export interface Footprint {
  readonly bundleBytes: number
  /** Processor time of deploy without inputs, divided by that of `node -e 0`, so that machines are comparable. */
  readonly coldStartRatio: number
}

const RECORD = join(import.meta.dirname, 'recorded.json')
const ROUNDS = 15
const CPU_TIME_PRELOAD = `data:text/javascript,${encodeURIComponent(`
  import { writeSync } from 'node:fs'
  process.once('exit', () => {
    const { user, system } = process.cpuUsage()
    writeSync(3, String(user + system))
  })
`)}`

/** Measures the `dist/` of `repository`. */
export function measureFootprint(repository: string): Footprint {
  return {
    bundleBytes: statSync(join(repository, 'dist/index.js')).size,
    coldStartRatio: measureColdStart(join(repository, 'dist/deploy.js')),
  }
}

export function readRecordedFootprint(): Footprint {
  return JSON.parse(readFileSync(RECORD, 'utf8'))
}

export function recordFootprint(footprint: Footprint): void {
  const rounded = { ...footprint, coldStartRatio: Number(footprint.coldStartRatio.toFixed(2)) }
  writeFileSync(RECORD, `${JSON.stringify(rounded, null, 2)}\n`)
}

/** Measures processor time, not elapsed time, and in pairs, so that other load on the machine has little effect. */
function measureColdStart(action: string): number {
  const ratios: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const floor = cpuTimeOf(['-e', '0'])
    ratios.push(cpuTimeOf([action]) / floor)
  }
  return median(ratios)
}

function cpuTimeOf(args: readonly string[]): number {
  const { output } = spawnSync(process.execPath, ['--import', CPU_TIME_PRELOAD, ...args], {
    env: { PATH: process.env['PATH'] },
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  })
  const microseconds = Number(output[3])
  if (!(microseconds > 0)) throw new Error(`node ${args.join(' ')} reported no processor time.`)
  return microseconds
}

/** The middle value, or the mean of the two in the middle. Throws RangeError for no values. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  const [low, high] = [sorted[Math.ceil(middle) - 1], sorted[Math.floor(middle)]]
  if (low === undefined || high === undefined) throw new RangeError('A median needs at least one value.')
  return (low + high) / 2
}

/** The smallest value that at least this share of the values does not exceed. Throws RangeError for no values. */
export function percentile(values: readonly number[], share: number): number {
  const found = values.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(values.length * share) - 1)]
  if (found === undefined) throw new RangeError('A percentile needs at least one value.')
  return found
}

/** The exponent k of the best fit y = c · x^k, by least squares of the logarithms. All values must be above 0. */
export function fitExponent(points: readonly (readonly [x: number, y: number])[]): number {
  const logs = points.map(([x, y]) => [Math.log(x), Math.log(y)] as const)
  const meanX = mean(logs.map(([x]) => x))
  const meanY = mean(logs.map(([, y]) => y))
  const covariance = mean(logs.map(([x, y]) => (x - meanX) * (y - meanY)))
  return covariance / mean(logs.map(([x]) => (x - meanX) ** 2))
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
