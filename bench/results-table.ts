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

const HEAD = ['Workload', 'Deployment', 'Ours', 'Shell', 'Python', 'Ours / shell', 'Ours / Python', 'Our peak memory']

/** The races as a Markdown table: medians, ratios of medians, and each target with `ok` or `MISSED`. */
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
  return ours === undefined || theirs === undefined ? '' : judged(ours.ms / theirs.ms, targets[peer], 2)
}

function memoryCell(cost: Cost | undefined, { peakMb }: Targets): string {
  return cost?.peakMb === undefined ? 'not measured' : judged(cost.peakMb, peakMb, 0, ' MB')
}

function judged(value: number, target: number | undefined, digits: number, unit = ''): string {
  const found = `${value.toFixed(digits)}${unit}`
  if (target === undefined) return found
  return `${found} (≤ ${target.toFixed(digits)}: ${value <= target ? 'ok' : 'MISSED'})`
}
