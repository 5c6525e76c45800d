import { type Contender, listContenders } from '../contenders.ts'
import { type Cost, fitExponent } from '../measure.ts'
import { race, withReleases } from '../race.ts'
import { markdownTable, type Place, seconds } from '../results.ts'
import type { Workload } from '../workloads.ts'

const ROUNDS = 3
const FLOOR: Workload = { name: 'floor', files: 1, bytes: 1_000 }
const FILE_BYTES = 1_000
const FILES_OF_BYTES = 200

const BY_FILES = [1_000, 4_000, 15_000, 60_000].map(files => ({
  name: `${files.toLocaleString('en')} files of 1 kB`,
  files,
  bytes: files * FILE_BYTES,
}))
const BY_BYTES = [20, 80, 250, 800].map(megabytes => ({
  name: `${megabytes} MB in ${FILES_OF_BYTES} files`,
  files: FILES_OF_BYTES,
  bytes: megabytes * 1e6,
}))

/**
 * Reports how the cost of a first install grows with the number of files and of bytes: a table, then the exponents of
 * time (beyond that of one tiny file) and of peak memory. An exponent of 1 means linear growth, and 0 means none.
 */
export async function growthReport(place: Place): Promise<string> {
  const ours = listContenders('zip', place.repository).filter(({ name }) => name === 'ours')
  const floor = await costOf(FLOOR, ours, place)
  const files = await costsOf(BY_FILES, ours, place)
  const bytes = await costsOf(BY_BYTES, ours, place)
  const rows = [{ workload: FLOOR, cost: floor }, ...files, ...bytes]
  return [
    markdownTable(['First install of', 'Time', 'Peak memory'], rows.map(cells)),
    '',
    `By the number of files: ${exponents(files, 'files', floor)}.`,
    `By the number of bytes: ${exponents(bytes, 'bytes', floor)}.`,
  ].join('\n')
}

interface Point {
  readonly workload: Workload
  readonly cost: Cost
}

async function costsOf(workloads: readonly Workload[], ours: readonly Contender[], place: Place): Promise<Point[]> {
  const points: Point[] = []
  for (const workload of workloads) points.push({ workload, cost: await costOf(workload, ours, place) })
  return points
}

function costOf(workload: Workload, ours: readonly Contender[], { cache, folder }: Place): Promise<Cost> {
  return withReleases({ workload, format: 'zip', cache, folder }, async releases => {
    process.stderr.write(`Measuring ${workload.name}.\n`)
    const cost = (await race(releases, { contenders: ours, rounds: ROUNDS, folder }))['first install'].ours
    if (cost === undefined) throw new Error('There is no dist/deploy.js: run `npm run build`.')
    return cost
  })
}

function exponents(points: readonly Point[], by: 'files' | 'bytes', floor: Cost): string {
  const time = fitExponent(points.map(({ workload, cost }) => [workload[by], cost.ms - floor.ms]))
  const peaks = points.flatMap(({ workload, cost: { peakMb } }) =>
    peakMb === undefined ? [] : [[workload[by], peakMb] as const],
  )
  const memory = peaks.length === 0 ? 'not measured' : fitExponent(peaks).toFixed(2)
  return `time grows with exponent ${time.toFixed(2)}, peak memory with ${memory}`
}

function cells({ workload, cost }: Point): string[] {
  const name = workload === FLOOR ? 'one file of 1 kB' : workload.name
  return [name, seconds(cost.ms), cost.peakMb === undefined ? 'not measured' : `${cost.peakMb.toFixed(0)} MB`]
}
