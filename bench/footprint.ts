import { spawnSync } from 'node:child_process'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { median } from './statistics.ts'

/** What every run of an action pays before it does anything. */
export interface Footprint {
  readonly bundleBytes: number
  /** Processor time of the deploy action without inputs over that of `node -e 0`: the same on fast and slow machines. */
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

/** Measures what is built in `repository`. */
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

/** Processor time and not time on the clock, in pairs of neighbours: what else the machine does hardly shows. */
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
  if (!(microseconds > 0)) throw new Error(`Expected the processor time of node ${args.join(' ')}, found none.`)
  return microseconds
}
