/** What a deployment installs: so many files, so many bytes in all. */
export interface Workload {
  readonly name: string
  readonly files: number
  readonly bytes: number
}

export interface RacedWorkload extends Workload {
  readonly format: Format
  readonly rounds: number
  readonly quickRounds?: number
}

/** `zip` is the marketplace's artifact, `sealed` the proposed hub's encrypted one. */
export type Format = 'zip' | 'sealed'

const LARGE = { files: 25_000, bytes: 400_000_000 }

/** The races of `npm run bench`, in their order; those with `quickRounds` are run by `--quick`. */
export const RACES: readonly RacedWorkload[] = [
  { name: 'S', format: 'zip', files: 60, bytes: 400_000, rounds: 15, quickRounds: 5 },
  { name: 'M', format: 'zip', files: 3_000, bytes: 30_000_000, rounds: 9, quickRounds: 3 },
  { name: 'L', format: 'zip', ...LARGE, rounds: 5 },
  { name: 'X', format: 'zip', files: 1, bytes: 1_000_000_000, rounds: 3 },
  { name: 'sealed-L', format: 'sealed', ...LARGE, rounds: 5 },
]
