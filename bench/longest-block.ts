import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { deployWithOurs } from './contenders.ts'
import { onNewHost } from './race.ts'
import { withReleases } from './releases.ts'
import { markdownTable } from './results-table.ts'
import type { Place } from './run-races.ts'
import type { RacedWorkload } from './workloads.ts'

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
