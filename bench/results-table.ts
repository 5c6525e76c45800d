import type { Cost } from './measure.ts'
import { deploymentNames, type RaceResult } from './race.ts'
import type { Workload } from './workloads.ts'

export interface RaceRow {
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
