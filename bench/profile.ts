import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionRun } from '../local/runner.ts'
import { deployWithOurs } from './contenders.ts'
import { type CpuProfile, selfTimes } from './cpu-profile.ts'
import { isInstalled } from './programs.ts'
import { onNewHost } from './race.ts'
import { withReleases } from './releases.ts'
import { markdownTable } from './results-table.ts'
import type { Place } from './run-races.ts'
import { measureStarts } from './start-up.ts'
import { median } from './statistics.ts'
import { syscallTimes } from './syscalls.ts'
import type { RacedWorkload } from './workloads.ts'

const REPEATS = 7
const SHOWN_FUNCTIONS = 16
const TRACED = 'fsync,fdatasync,syncfs,rename,link,openat,write,writev,mkdir,unlink,unlinkat'

/**
 * Reports how a first install spends its time: the start-up, then the states, system calls and functions of each ZIP
 * workload.
 */
export async function profileReport(races: readonly RacedWorkload[], place: Place): Promise<string> {
  const parts = [startTable(place)]
  for (const workload of races.filter(({ format }) => format === 'zip'))
    parts.push(await profileWorkload(workload, place))
  return parts.join('\n\n')
}

function startTable({ repository }: Place): string {
  const rows = measureStarts(repository).map(({ what, ms }) => [what, `${ms.toFixed(0)} ms`])
  return markdownTable(['Start-up', 'Median'], rows)
}

async function profileWorkload(workload: RacedWorkload, { repository, cache, folder }: Place): Promise<string> {
  return withReleases({ workload, format: 'zip', cache, folder }, async releases => {
    const deploy = (more: (temp: string) => Partial<ActionRun>) =>
      onNewHost(folder, async host => {
        const { temp } = host.workspace
        let startedAt = 0
        const onStart = () => {
          startedAt = performance.now()
        }
        const { outputs } = await deployWithOurs({ ...host, ...releases[1] }, { repository, onStart, ...more(temp) })
        return { ms: performance.now() - startedAt, ...readTraces(temp, outputs['report-path'] ?? '') }
      })
    return [
      `${workload.name}, by state:`,
      await stateTable(() => deploy(() => ({}))),
      `${workload.name}, by system call:`,
      isInstalled('strace')
        ? syscallTable((await deploy(underStrace)).syscalls)
        : 'Skipped: this machine has no strace.',
      `${workload.name}, by function of the main thread:`,
      functionTable((await deploy(underProfiler)).profiles),
    ].join('\n\n')
  })
}

function underStrace(temp: string): Partial<ActionRun> {
  return { through: ['strace', '-f', '-T', '-y', '-e', `trace=${TRACED}`, '-o', join(temp, 'strace.log')] }
}

function underProfiler(temp: string): Partial<ActionRun> {
  const folder = join(temp, 'profile')
  mkdirSync(folder)
  return { env: { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${folder}` } }
}

interface Traces {
  readonly states: readonly { state: string; at: string }[]
  readonly completedAt: string
  /** From the start of the process to its end. */
  readonly ms: number
  readonly syscalls: string
  readonly profiles: readonly CpuProfile[]
}

function readTraces(temp: string, reportPath: string): Omit<Traces, 'ms'> {
  const report = JSON.parse(readFileSync(reportPath, 'utf8'))
  const names = readdirSync(temp, { recursive: true, encoding: 'utf8' })
  const read = (ending: string) =>
    names.filter(name => name.endsWith(ending)).map(name => readFileSync(join(temp, name), 'utf8'))
  return {
    states: report.states,
    completedAt: report.completed_at,
    syscalls: read('strace.log').join('\n'),
    profiles: read('.cpuprofile').map(text => JSON.parse(text)),
  }
}

async function stateTable(deploy: () => Promise<Traces>): Promise<string> {
  const durations = new Map<string, number[]>()
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    for (const [state, ms] of stateDurations(await deploy()))
      durations.set(state, [...(durations.get(state) ?? []), ms])
  }
  return markdownTable(
    ['State', 'Median'],
    [...durations].map(([state, each]) => [state, `${median(each).toFixed(0)} ms`]),
  )
}

/** The time in each state, and the time before the first and after the last: start-up, reports and exit. */
function stateDurations({ states, completedAt, ms }: Traces): [string, number][] {
  const starts = states.map(({ at }) => Date.parse(at))
  const durations = states.map(({ state }, index): [string, number] => [
    state,
    (starts[index + 1] ?? Date.parse(completedAt)) - (starts[index] ?? 0),
  ])
  const inStates = durations.reduce((sum, [, duration]) => sum + duration, 0)
  return [...durations, ['before and after', ms - inStates]]
}

function syscallTable(trace: string): string {
  const rows = syscallTimes(trace).map(({ name, calls, ms }) => [name, String(calls), `${ms.toFixed(1)} ms`])
  return markdownTable(['System call (traced, all threads)', 'Calls', 'Inside'], rows)
}

function functionTable(profiles: readonly CpuProfile[]): string {
  const rows = selfTimes(profiles)
    .slice(0, SHOWN_FUNCTIONS)
    .map(({ name, ms, share }) => [name, `${ms.toFixed(1)} ms`, `${(share * 100).toFixed(0)} %`])
  return markdownTable(['Function', 'Self time', 'Share'], rows)
}
