import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { percentile } from '../measure.ts'
import { throwIfInterrupted } from '../race.ts'
import { markdownTable, type Place } from '../results.ts'
import { addTally, type Hosts, newTally, type Tally, type Target } from './hosts.ts'
import { publishTargets, type ServedHub, serveHub } from './served-hub.ts'

/** About 20 MB when packed. */
const WORKLOAD = { name: 'the load', files: 1_000, bytes: 72_000_000 }
const REPORTING: Hosts = { count: 200, deployments: 20, downloads: false }
const DOWNLOADING: Hosts = { count: 50, deployments: 4, downloads: true }

const PROGRAM = join(import.meta.dirname, 'hosts-program.ts')
const HEAD = ['Contract', 'Call', 'Calls', 'p50', 'p99', 'Longest']

/**
 * Deploys from the reference hub on 250 hosts at once: 200 already have the version, and 50 download it. Reports how
 * many requests per second the hub answers, and how long each call takes. Throws if a deployment fails.
 */
export async function hubLoadReport({ cache, folder }: Place): Promise<string> {
  const dataDir = mkdtempSync(join(folder, 'hub-'))
  const { marketplace, project } = await publishTargets(dataDir, cache, WORKLOAD)
  const hub = await serveHub(dataDir)
  try {
    const loads: LoadResult[] = []
    for (const target of [marketplace, project]) loads.push(await runLoad({ ...target, hubUrl: hub.url }, hub))
    return [markdownTable(HEAD, loads.flatMap(callRows)), '', ...loads.map(sentence)].join('\n')
  } finally {
    await hub.stop()
    rmSync(dataDir, { recursive: true })
  }
}

interface LoadResult {
  readonly contract: string
  readonly tally: Tally
  readonly ms: number
  readonly cpuMs: number
  readonly peakMb: number
}

async function runLoad(target: Target, hub: ServedHub): Promise<LoadResult> {
  throwIfInterrupted()
  process.stderr.write(`Deploying on 250 hosts at once (${target.contract}).\n`)
  const before = hub.usage()
  const startedAt = performance.now()
  const tally = newTally()
  for (const each of await Promise.all([REPORTING, DOWNLOADING].map(hosts => runProgram(target, hosts))))
    addTally(tally, each)
  const ms = performance.now() - startedAt
  const { cpuMs, peakMb } = hub.usage()
  if (tally.errors.length > 0)
    throw new Error(`Failed deployments: ${tally.errors.length}. The first error: ${tally.errors[0]}`)
  return { contract: target.contract, tally, ms, cpuMs: cpuMs - before.cpuMs, peakMb }
}

async function runProgram(target: Target, hosts: Hosts): Promise<Tally> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify({ target, hosts })], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return (await json(child.stdout)) as Tally
}

function callRows({ contract, tally }: LoadResult): string[][] {
  return Object.entries(tally.calls).map(([name, each]) => [
    contract,
    name === 'download' ? 'download, first byte' : name,
    String(each.length),
    ...[0.5, 0.99, 1].map(share => `${percentile(each, share).toFixed(0)} ms`),
  ])
}

function sentence({ contract, tally, ms, cpuMs, peakMb }: LoadResult): string {
  const requests = Object.values(tally.calls).reduce((sum, each) => sum + each.length, 0)
  const perSecond = Math.round((requests / ms) * 1000)
  const cpu = `${(cpuMs / 1000).toFixed(1)} s of the hub's processor time`
  return `- ${contract}: ${requests} requests in ${(ms / 1000).toFixed(1)} s (${perSecond} per second), with no errors; ${cpu}; peak memory of the hub until then: ${peakMb.toFixed(0)} MB.`
}
