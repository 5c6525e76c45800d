import type { ArtifactCache } from './artifact-cache.ts'
import { type Contender, listContenders } from './contenders.ts'
import { race } from './race.ts'
import { withReleases } from './releases.ts'
import type { RaceRow } from './results-table.ts'
import type { RacedWorkload } from './workloads.ts'

/** The checkout to measure, the artifacts, and the folder to deploy into. */
export interface Place {
  readonly repository: string
  readonly cache: ArtifactCache
  readonly folder: string
}

/**
 * Runs the races one after the other. Skips contenders that cannot run, and races that our action cannot run; `skipped`
 * gives the reasons.
 */
export async function runRaces(
  races: readonly RacedWorkload[],
  place: Place,
): Promise<{ rows: RaceRow[]; skipped: string[] }> {
  const rows: RaceRow[] = []
  const skipped = new Set<string>()
  for (const raced of races) {
    const contenders = listContenders(raced.format, place.repository)
    for (const contender of contenders.filter(isSkipped)) skipped.add(whySkipped(contender))
    const ready = contenders.filter(contender => !isSkipped(contender))
    if (ready[0]?.name === 'ours') rows.push(await runRace(raced, ready, place))
  }
  return { rows, skipped: [...skipped] }
}

function runRace(
  workload: RacedWorkload,
  contenders: readonly Contender[],
  { cache, folder }: Place,
): Promise<RaceRow> {
  const { format, rounds, name } = workload
  return withReleases({ workload, format, cache, folder }, async releases => {
    process.stderr.write(`Racing ${contenders.map(each => each.name).join(', ')} on ${name} (rounds: ${rounds}).\n`)
    const { artifact } = releases[1]
    return {
      workload,
      artifactBytes: artifact.size,
      result: await race(releases, { contenders, rounds, folder }),
    }
  })
}

function isSkipped({ missing }: Contender): boolean {
  return missing.length > 0
}

function whySkipped({ name, format, missing }: Contender): string {
  return `Skipped: ${name} for ${format}, because it lacks ${missing.join(', ')}.`
}
