import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { makeWorkspace } from '../local/runner.ts'
import type { ArtifactCache } from './artifact-cache.ts'
import type { Contender, ContenderName, Job } from './contenders.ts'
import { type Cost, measure, median } from './measure.ts'
import { type HubProcess, startHub } from './programs.ts'
import { type Artifact, type Format, SLUG, type Version, type Workload } from './workloads.ts'

/** One version of a workload, and the hub that serves it. */
interface Served {
  readonly artifact: Artifact
  readonly hubUrl: string
}

export type Releases = Readonly<Record<Version, Served>>
export const DEPLOYMENTS = { 'first install': 1, update: 2 } as const
type DeploymentName = keyof typeof DEPLOYMENTS

/** Medians over the rounds. */
export type RaceResult = Record<DeploymentName, Partial<Record<ContenderName, Cost>>>

interface RaceSetup {
  readonly contenders: readonly Contender[]
  readonly rounds: number
  /** In each round, each contender gets a new host below this folder. */
  readonly folder: string
}

/**
 * Runs the contenders in turn, round by round; each does a first install and an update. The order rotates from round to
 * round. An extra first round, which does not count, loads programs and artifacts into memory.
 */
export async function race(releases: Releases, { contenders, rounds, folder }: RaceSetup): Promise<RaceResult> {
  const costs: Record<DeploymentName, Partial<Record<ContenderName, Cost[]>>> = { 'first install': {}, update: {} }
  for (let round = 0; round <= rounds; round++) {
    for (const contender of rotate(contenders, round)) {
      const taken = await runContender(contender, releases, folder)
      if (round === 0) continue
      for (const name of deploymentNames()) {
        costs[name][contender.name] = [...(costs[name][contender.name] ?? []), taken[name]]
      }
    }
  }
  return { 'first install': medians(costs['first install']), update: medians(costs.update) }
}

export function deploymentNames(): DeploymentName[] {
  return Object.keys(DEPLOYMENTS) as DeploymentName[]
}

/** Calls `use` with an empty host and removes the host afterwards. */
export async function onNewHost<T>(folder: string, use: (host: Pick<Job, 'projectRoot' | 'workspace'>) => Promise<T>) {
  throwIfInterrupted()
  const host = mkdtempSync(join(folder, 'host-'))
  const projectRoot = join(host, 'root')
  mkdirSync(projectRoot)
  try {
    return await use({ projectRoot, workspace: makeWorkspace(host) })
  } finally {
    rmSync(host, { recursive: true, force: true })
    settle(folder)
  }
}

/** Flushes pending writes, so that no contender waits for those of another. */
function settle(folder: string): void {
  execFileSync('sync', ['-f', folder])
}

function runContender(contender: Contender, releases: Releases, folder: string): Promise<Record<DeploymentName, Cost>> {
  return onNewHost(folder, async host => {
    const deploy = async (version: Version): Promise<Cost> => {
      const job = { ...host, ...releases[version] }
      throwIfInterrupted()
      const cost = await measure(`Deploying with ${contender.name}`, job.workspace.temp, (through, onStart) =>
        contender.start(job, through, onStart),
      )
      expectInstalled(job)
      settle(folder)
      return cost
    }
    return { 'first install': await deploy(1), update: await deploy(2) }
  })
}

function expectInstalled({ projectRoot, artifact }: Job): void {
  const text = readFileSync(join(projectRoot, 'plugins', SLUG, 'plugin.yaml'), 'utf8')
  if (!text.includes(`version: ${artifact.version}\n`)) throw new Error(`Version ${artifact.version} is not installed.`)
}

function rotate<T>(items: readonly T[], by: number): T[] {
  const start = by % items.length
  return [...items.slice(start), ...items.slice(0, start)]
}

function medians(costs: Partial<Record<ContenderName, Cost[]>>): Partial<Record<ContenderName, Cost>> {
  return Object.fromEntries(Object.entries(costs).map(([name, each]) => [name, medianCost(each)]))
}

function medianCost(costs: readonly Cost[]): Cost {
  const peaks = costs.map(({ peakMb }) => peakMb).filter(peak => peak !== undefined)
  return { ms: median(costs.map(({ ms }) => ms)), peakMb: peaks.length === 0 ? undefined : median(peaks) }
}

/** Creates both versions of a workload and serves them while `use` runs. */
export async function withReleases<T>(
  { workload, format, cache, folder }: { workload: Workload; format: Format; cache: ArtifactCache; folder: string },
  use: (releases: Releases) => Promise<T>,
): Promise<T> {
  const artifacts = { v1: await cache.get(workload, format, 1), v2: await cache.get(workload, format, 2) }
  const hub = await startHub(artifacts, folder)
  try {
    return await use({ 1: served(hub, artifacts.v1, 'v1'), 2: served(hub, artifacts.v2, 'v2') })
  } finally {
    await hub.stop()
  }
}

function served(hub: HubProcess, artifact: Artifact, name: string) {
  return { artifact, hubUrl: hub.urlOf(name) }
}

const interruption = new AbortController()

/** After this call, SIGINT and SIGTERM make the bench throw before its next step, so that its cleanup always runs. */
export function stopOnSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      process.stderr.write(`${signal}: waiting for the current step to end, then cleaning up.\n`)
      interruption.abort(new Error(`${signal} interrupted the bench.`))
    })
  }
}

/** Returns the interruption, if there was one. In that case, it is the cause of every later error. */
export function interruptionIfAny(): unknown {
  return interruption.signal.reason
}

export function throwIfInterrupted(): void {
  interruption.signal.throwIfAborted()
}
