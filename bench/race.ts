import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { makeWorkspace } from '../local/runner.ts'
import type { Artifact } from './artifact.ts'
import type { Contender, ContenderName, Job } from './contenders.ts'
import { throwIfInterrupted } from './interruption.ts'
import { type Cost, measure } from './measure.ts'
import { SLUG, type Version } from './release.ts'
import { median } from './statistics.ts'

/** One version of a workload, and the hub that serves it. */
export interface Served {
  readonly artifact: Artifact
  readonly hubUrl: string
}

export type Releases = Readonly<Record<Version, Served>>
export const DEPLOYMENTS = { 'first install': 1, update: 2 } as const
export type DeploymentName = keyof typeof DEPLOYMENTS

/** Medians over the rounds. */
export type RaceResult = Record<DeploymentName, Partial<Record<ContenderName, Cost>>>

export interface RaceSetup {
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
export function settle(folder: string): void {
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
