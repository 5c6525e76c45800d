/** The content of a deployment: its number of files and their total bytes. */
export interface Workload {
  readonly name: string
  readonly files: number
  readonly bytes: number
  /** The number of plugins that the files are divided among; default 1. */
  readonly parts?: number
}

export interface RacedWorkload extends Workload {
  readonly format: Format
  readonly rounds: number
  readonly quickRounds?: number
}

/** `zip` is the marketplace's artifact, `sealed` the encrypted one of the proposed contract. */
export type Format = 'zip' | 'sealed'

const LARGE = { files: 25_000, bytes: 400_000_000 }

/** The races of `npm run bench`, in order; `--quick` runs those with `quickRounds`. */
export const RACES: readonly RacedWorkload[] = [
  { name: 'S', format: 'zip', files: 60, bytes: 400_000, rounds: 15, quickRounds: 5 },
  { name: 'M', format: 'zip', files: 3_000, bytes: 30_000_000, rounds: 9, quickRounds: 3 },
  { name: 'L', format: 'zip', ...LARGE, rounds: 5 },
  { name: 'X', format: 'zip', files: 1, bytes: 1_000_000_000, rounds: 3 },
  { name: 'sealed-L', format: 'sealed', ...LARGE, rounds: 5 },
]

/** The workload of `npm run bench -- --project`: the content of L in a project of many parts. */
export const PROJECT = { name: 'project', ...LARGE, parts: 40 } as const satisfies Workload
