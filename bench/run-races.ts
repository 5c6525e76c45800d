import type { ArtifactCache } from './artifact-cache.ts'
import { type Contender, listContenders } from './contenders.ts'
import { race } from './race.ts'
import { withReleases } from './releases.ts'
import type { RaceRow } from './results-table.ts'
import { targetsOf } from './targets.ts'
import type { RacedWorkload } from './workloads.ts'

/** What is measured, and where. */
export interface Place {
  readonly repository: string
  readonly cache: ArtifactCache
  readonly folder: string
}

/** Runs the races one after the other; a race that nobody of ours can run is skipped, with its reason. */
export async function runRaces(
  races: readonly RacedWorkload[],
  { repository, cache, folder }: Place,
): Promise<{ rows: RaceRow[]; skipped: string[] }> {
  const rows: RaceRow[] = []
  const skipped = new Set<string>()
  for (const raced of races) {
    const contenders = listContenders(raced.format, repository)
    for (const contender of contenders.filter(isSkipped)) skipped.add(whySkipped(contender))
    const ready = contenders.filter(contender => !isSkipped(contender))
    if (ready[0]?.name === 'ours') rows.push(await runRace(raced, ready, cache, folder))
  }
  return { rows, skipped: [...skipped] }
}

function runRace(workload: RacedWorkload, contenders: readonly Contender[], cache: ArtifactCache, folder: string) {
  const { format, rounds, name } = workload
  return withReleases({ workload, format, cache, folder }, async releases => {
    process.stderr.write(`Racing ${name}: ${contenders.map(each => each.name).join(', ')}, ${rounds} rounds.\n`)
    const { artifact } = releases[1]
    return {
      workload,
      artifactBytes: artifact.size,
      targets: targetsOf(name, artifact),
      result: await race(contenders, releases, rounds, folder),
    }
  })
}

function isSkipped({ missing }: Contender): boolean {
  return missing.length > 0
}

function whySkipped({ name, format, missing }: Contender): string {
  return `Skipped: ${name} for ${format}, because this machine has no ${missing.join(', ')}.`
}
