import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { deployWithOurs, type Job } from '../contenders.ts'
import { median } from '../measure.ts'
import { DEPLOYMENTS, deploymentNames, onNewHost, type Releases, withReleases } from '../race.ts'
import { markdownTable, type Place, seconds } from '../results.ts'
import { PROJECT, type RacedWorkload } from '../workloads.ts'

/** The longest time for which a host may have parts of both versions. */
const MAX_SWITCH_MS = 50
const ROUNDS = 5
const HEAD = ['Project of 40 parts', 'Time', '`sync -f`', 'Renames', 'First to last rename']

/** The switch of a project's trees in one deployment. */
interface Switch {
  readonly ms: number
  readonly syncs: number
  readonly renames: number
  readonly switchMs: number
}

/**
 * Creates a table of a project's deployments, with medians of several rounds: the whole time, the syncs, the renames,
 * and the time from the first to the last rename of a tree.
 */
export async function projectReport({ repository, cache, folder }: Place): Promise<string> {
  const rounds = await withReleases({ workload: PROJECT, format: 'sealed', cache, folder }, async releases => {
    const found: Switch[][] = []
    for (let round = 0; round < ROUNDS; round++) found.push(await deployBoth(releases, { repository, folder }))
    return found
  })
  const rows = deploymentNames().map((name, index) =>
    cells(
      name,
      rounds.flatMap(round => round[index] ?? []),
    ),
  )
  return markdownTable(HEAD, rows)
}

/** Runs a first install, then an update. */
function deployBoth(
  releases: Releases,
  { repository, folder }: Pick<Place, 'repository' | 'folder'>,
): Promise<Switch[]> {
  return onNewHost(folder, async host => {
    const found: Switch[] = []
    for (const name of deploymentNames())
      found.push(await observe({ ...host, ...releases[DEPLOYMENTS[name]] }, repository))
    return found
  })
}

async function observe(job: Job, repository: string): Promise<Switch> {
  const file = join(job.workspace.temp, 'rename-times')
  const preload = join(import.meta.dirname, 'rename-times.ts')
  const env = { NODE_OPTIONS: `--import=${preload}`, RENAME_TIMES_FILE: file }
  const startedAt = performance.now()
  const { exitCode, log } = await deployWithOurs(job, { repository, env })
  const ms = performance.now() - startedAt
  if (exitCode !== 0) throw new Error(`The deployment of the project failed:\n${log}`)
  const { renames, syncs }: { renames: { from: string; to: string; at: number }[]; syncs: number } = JSON.parse(
    readFileSync(file, 'utf8'),
  )
  const plugins = join(job.projectRoot, 'plugins/')
  const trees = renames.filter(({ from, to }) => from.startsWith(plugins) || to.startsWith(plugins))
  const switchMs = (trees.at(-1)?.at ?? 0) - (trees[0]?.at ?? 0)
  return { ms, syncs, renames: trees.length, switchMs }
}

function cells(name: string, found: readonly Switch[]): string[] {
  const of = (field: keyof Switch): number => median(found.map(one => one[field]))
  const switchMs = of('switchMs')
  const verdict = switchMs <= MAX_SWITCH_MS ? 'ok' : 'MISSED'
  return [
    name,
    seconds(of('ms')),
    String(of('syncs')),
    String(of('renames')),
    `${switchMs.toFixed(1)} ms (≤ ${MAX_SWITCH_MS}: ${verdict})`,
  ]
}

/** A cancel may wait no longer than this for the event loop. */
const MAX_BLOCK_MS = 100

/** Creates a table with the longest block of our event loop during an install of each workload. */
export async function blocksTable(races: readonly RacedWorkload[], place: Place): Promise<string> {
  const rows: string[][] = []
  for (const workload of races) {
    const ms = await longestBlock(workload, place)
    rows.push([workload.name, `${ms.toFixed(0)} ms (≤ ${MAX_BLOCK_MS}: ${ms <= MAX_BLOCK_MS ? 'ok' : 'MISSED'})`])
  }
  return markdownTable(['Workload', 'Longest block of the event loop'], rows)
}

function longestBlock(workload: RacedWorkload, { repository, cache, folder }: Place): Promise<number> {
  return withReleases({ workload, format: workload.format, cache, folder }, releases =>
    onNewHost(folder, async host => {
      const file = join(host.workspace.temp, 'loop-delay')
      const preload = join(import.meta.dirname, 'loop-delay.ts')
      const env = { NODE_OPTIONS: `--import=${preload}`, LOOP_DELAY_FILE: file }
      const { exitCode, log } = await deployWithOurs({ ...host, ...releases[1] }, { repository, env })
      if (exitCode !== 0) throw new Error(`The deployment of ${workload.name} failed:\n${log}`)
      return Number(readFileSync(file, 'utf8'))
    }),
  )
}
