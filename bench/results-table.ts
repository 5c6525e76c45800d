import type { ContenderName } from './contenders.ts'
import type { Cost } from './measure.ts'
import { deploymentNames, type RaceResult } from './race.ts'
import type { Targets } from './targets.ts'
import type { Workload } from './workloads.ts'

export interface RaceRow {
  readonly workload: Workload
  readonly artifactBytes: number
  readonly targets: Targets
  readonly result: RaceResult
}

const HEAD = [
  'Workload',
  'Deployment',
  'Ours',
  'Shell',
  'Python',
  'Least',
  'Ours / shell',
  'Ours / Python',
  'Our peak memory',
]

/** A Markdown table of the races: medians, their ratios, and `ok` or `MISSED` for each target. */
export function resultsTable(rows: readonly RaceRow[]): string {
  return markdownTable(HEAD, rows.flatMap(raceCells))
}

export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map(cells => `| ${cells.join(' | ')} |`).join('\n')
}

export function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`
}

function raceCells({ workload, artifactBytes, targets, result }: RaceRow): string[][] {
  const { name, files, bytes } = workload
  const what = `${name}: ${count(files)}, ${megabytes(bytes)}, ${megabytes(artifactBytes)} packed`
  return deploymentNames().map(deployment => {
    const costs = result[deployment]
    return [
      what,
      deployment,
      ...(['ours', 'shell', 'python'] as const).map(contender => timeCell(costs[contender])),
      // Only the ZIP races have this contender.
      costs.least === undefined ? '' : seconds(costs.least.ms),
      ratioCell(costs, 'shell', targets),
      ratioCell(costs, 'python', targets),
      memoryCell(costs.ours, targets),
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

function ratioCell(costs: Partial<Record<ContenderName, Cost>>, peer: 'shell' | 'python', targets: Targets): string {
  const [ours, theirs] = [costs.ours, costs[peer]]
  return ours === undefined || theirs === undefined
    ? ''
    : judged({ value: ours.ms / theirs.ms, target: targets[peer], digits: 2, unit: '' })
}

function memoryCell(cost: Cost | undefined, { peakMb }: Targets): string {
  return cost?.peakMb === undefined
    ? 'not measured'
    : judged({ value: cost.peakMb, target: peakMb, digits: 0, unit: ' MB' })
}

interface Figure {
  readonly value: number
  readonly target: number | undefined
  readonly digits: number
  readonly unit: string
}

function judged({ value, target, digits, unit }: Figure): string {
  const found = `${value.toFixed(digits)}${unit}`
  if (target === undefined) return found
  return `${found} (≤ ${target.toFixed(digits)}: ${value <= target ? 'ok' : 'MISSED'})`
}
