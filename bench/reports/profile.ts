import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { ActionRun } from '../../local/runner.ts'
import { deployWithOurs } from '../contenders.ts'
import { median } from '../measure.ts'
import { isInstalled } from '../programs.ts'
import { onNewHost, withReleases } from '../race.ts'
import { markdownTable, type Place } from '../results.ts'
import type { RacedWorkload } from '../workloads.ts'

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

const ROUNDS = 11
/** The work of the first TLS connection before its handshake. */
const READ_ROOTS = "require('node:https'); require('node:tls').createSecureContext()"

/** Median start-up times in milliseconds, from Node.js alone to our action without inputs, in interleaved runs. */
function measureStarts(repository: string): { what: string; ms: number }[] {
  const dist = join(repository, 'dist')
  // Loads the bundle but runs no action, because the bundle has none with this name.
  const load = `try { require('${dist}/start.js').start('${dist}', 'none') } catch (error) {
    if (!error.message.includes('no action none')) throw error
  }`
  const starts = [
    { what: '`node -e 0`', args: ['-e', '0'], times: [] as number[] },
    { what: 'loading `node:http`', args: ['-e', "require('node:http')"], times: [] },
    { what: 'loading `node:https`, which is HTTP and TLS', args: ['-e', "require('node:https')"], times: [] },
    { what: 'and reading the certificates that Node.js trusts', args: ['-e', READ_ROOTS], times: [] },
    { what: 'loading `dist/index.js`', args: ['-e', load], times: [] },
    { what: '`dist/deploy.js` without inputs', args: [join(dist, 'deploy.js')], times: [] },
  ]
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { args, times } of starts) times.push(timeStart(args))
  }
  return starts.map(({ what, times }) => ({ what, ms: median(times.slice(1)) }))
}

function timeStart(args: readonly string[]): number {
  const startedAt = performance.now()
  const { status } = spawnSync(process.execPath, args, { env: { PATH: process.env['PATH'] }, stdio: 'ignore' })
  if (args[0] === '-e' && status !== 0) throw new Error(`node ${args.join(' ')} failed.`)
  return performance.now() - startedAt
}

interface SyscallTime {
  readonly name: string
  readonly calls: number
  readonly ms: number
}

/**
 * The number and time of each system call in the output of `strace -f -T -y`, longest first. An fsync of one of our
 * records counts for that record: `fsync journal.jsonl`.
 */
export function syscallTimes(trace: string): SyscallTime[] {
  const found = new Map<string, SyscallTime>()
  for (const { name, ms } of finishedCalls(trace)) {
    const before = found.get(name) ?? { name, calls: 0, ms: 0 }
    found.set(name, { name, calls: before.calls + 1, ms: before.ms + ms })
  }
  return [...found.values()].toSorted((a, b) => b.ms - a.ms)
}

function* finishedCalls(trace: string): Generator<{ name: string; ms: number }> {
  const unfinished = new Map<string, string>()
  for (const line of trace.split('\n')) {
    const [, thread = '', call, path] = /^(\d+) +(?:(\w+)\((?:\d+<([^>]*)>)?|<\.\.\. )/.exec(line) ?? []
    const name = call === undefined ? unfinished.get(thread) : describeCall(call, path)
    const seconds = /<([\d.]+)>$/.exec(line)?.[1]
    if (name !== undefined && seconds !== undefined) yield { name, ms: Number(seconds) * 1000 }
    else if (name !== undefined) unfinished.set(thread, name)
  }
}

function describeCall(call: string, path: string | undefined): string {
  const record = /\.hub-deploy(?:\/([^/]*))?/.exec(path ?? '')
  if (call !== 'fsync' || record === null) return call
  return `fsync ${record[1]?.replace(/\.\d+\.[0-9a-f-]{36}\.tmp$/, '') ?? '.hub-deploy'}`
}

/** The fields of a `node --cpu-prof` file that the bench reads. */
interface CpuProfile {
  readonly nodes: readonly { id: number; callFrame: { functionName: string; url: string } }[]
  readonly samples: readonly number[]
  /** Microseconds since the previous sample. */
  readonly timeDeltas: readonly number[]
}

/** The time inside each function, without its callees and without idle time, longest first. */
export function selfTimes(profiles: readonly CpuProfile[]): { name: string; ms: number; share: number }[] {
  const times = new Map<string, number>()
  for (const profile of profiles) addSelfTimes(profile, times)
  times.delete('(idle)')
  const total = [...times.values()].reduce((sum, ms) => sum + ms, 0)
  return [...times].map(([name, ms]) => ({ name, ms, share: ms / total })).toSorted((a, b) => b.ms - a.ms)
}

function addSelfTimes({ nodes, samples, timeDeltas }: CpuProfile, times: Map<string, number>): void {
  const names = new Map(nodes.map(({ id, callFrame }) => [id, describeFunction(callFrame)]))
  for (const [index, id] of samples.entries()) {
    const name = names.get(id) ?? '(unknown)'
    times.set(name, (times.get(name) ?? 0) + (timeDeltas[index] ?? 0) / 1000)
  }
}

function describeFunction({ functionName, url }: { functionName: string; url: string }): string {
  const name = functionName === '' ? '(anonymous)' : functionName
  return url === '' ? name : `${name} in ${basename(url)}`
}
