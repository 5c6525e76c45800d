import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ArtifactCache } from './artifact-cache.ts'
import { type Contender, listContenders } from './contenders.ts'
import type { Cost } from './measure.ts'
import { deploymentNames, type RaceResult, race, withReleases } from './race.ts'
import type { RacedWorkload, Workload } from './workloads.ts'

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

interface RaceRow {
  readonly workload: Workload
  readonly artifactBytes: number
  readonly result: RaceResult
}

const PEERS = ['least', 'shell', 'python'] as const
const HEAD = [
  'Workload',
  'Deployment',
  'Ours',
  'Least',
  'Shell',
  'Python',
  'Ours / least',
  'Ours / shell',
  'Our peak memory',
]

/** A Markdown table of the races: medians and their ratios. */
export function resultsTable(rows: readonly RaceRow[]): string {
  return markdownTable(HEAD, rows.flatMap(raceCells))
}

export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map(cells => `| ${cells.join(' | ')} |`).join('\n')
}

export function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`
}

function raceCells({ workload, artifactBytes, result }: RaceRow): string[][] {
  const { name, files, bytes } = workload
  const what = `${name}: ${count(files)}, ${megabytes(bytes)}, ${megabytes(artifactBytes)} packed`
  return deploymentNames().map(deployment => {
    const costs = result[deployment]
    return [
      what,
      deployment,
      timeCell(costs.ours),
      // Only the ZIP races have the contender `least`.
      ...PEERS.map(peer => (peer === 'least' && costs.least === undefined ? '' : timeCell(costs[peer]))),
      ratioCell(costs.ours, costs.least),
      ratioCell(costs.ours, costs.shell),
      costs.ours?.peakMb === undefined ? 'not measured' : `${costs.ours.peakMb.toFixed(0)} MB`,
    ]
  })
}

function count(files: number): string {
  return files === 1 ? '1 file' : `${files.toLocaleString('en')} files`
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(bytes < 10e6 ? 1 : 0)} MB`
}

function timeCell(cost: Cost | undefined): string {
  return cost === undefined ? 'skipped' : seconds(cost.ms)
}

function ratioCell(ours: Cost | undefined, theirs: Cost | undefined): string {
  return ours === undefined || theirs === undefined ? '' : (ours.ms / theirs.ms).toFixed(2)
}

const PAGE = join(import.meta.dirname, '../docs/performance.md')

/**
 * Replaces the text between `<!-- section -->` and `<!-- /section -->` in docs/performance.md. Throws if the page has
 * no such markers.
 */
export function writeSection(section: string, text: string): void {
  writeFileSync(PAGE, replaceSection(readFileSync(PAGE, 'utf8'), section, text))
}

export function replaceSection(page: string, section: string, text: string): string {
  const [open, close] = [`<!-- ${section} -->`, `<!-- /${section} -->`]
  const start = page.indexOf(open)
  const end = page.indexOf(close, start)
  if (start < 0 || end < 0) throw new Error(`The page has no ${open} followed by ${close}: add both markers.`)
  return `${page.slice(0, start + open.length)}\n\n${text}\n\n${page.slice(end)}`
}
