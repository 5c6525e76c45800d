import { spawnSync } from 'node:child_process'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { median } from './statistics.ts'

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
