import { existsSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { RACES, type RacedWorkload } from './workloads.ts'

const REPOSITORY = join(import.meta.dirname, '..')

export interface Options {
  readonly races: readonly RacedWorkload[]
  readonly growth: boolean
  readonly profile: boolean
  readonly blocks: boolean
  readonly write: boolean
  readonly record: boolean
  /** See `openFileSystem`. */
  readonly fileSystem: string | undefined
  /** The checkout whose `dist/` is measured: this one or another. */
  readonly repository: string
  /** The folder that keeps artifacts between runs. */
  readonly cache: string
}

export const USAGE = `Usage: npm run bench -- [options]
Races dist/ against a shell script and a Python agent, so run \`npm run build\` first. Each race is a first install and an
update. S has about 60 files (0.4 MB), M 3,000 (30 MB), L 25,000 (400 MB), X one file of 1 GB; sealed-L is L, encrypted.
The exit code is 0 even if a target is missed.

  --quick          only the small races, with few rounds
  --only S,M       only these races, of ${RACES.map(({ name }) => name).join(', ')}
  --rounds N       the rounds of each race (default: ${RACES.map(({ name, rounds }) => `${name} ${rounds}`).join(', ')})
  --write          writes the results to docs/performance.md; needs all races
  --fs WHERE       measures on tmpfs, loop (ext4 in a file; needs root) or a folder
  --ours FOLDER    measures the dist/ of another checkout
  --cache FOLDER   the folder that keeps artifacts between runs

Instead of the races, do one of
  --growth         show how time and memory grow with files and bytes
  --profile        show where the time goes
  --blocks         show the longest block of the event loop
  --record         record the size and the cold start of dist/, which a test compares with later ones`

/**
 * Throws TypeError for an unknown option. Throws RangeError for an unknown race, a wrong number of rounds, options that
 * exclude each other, and a checkout without `dist/`.
 */
export function parseOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      rounds: { type: 'string' },
      growth: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
      blocks: { type: 'boolean', default: false },
      record: { type: 'boolean', default: false },
      write: { type: 'boolean', default: false },
      fs: { type: 'string' },
      ours: { type: 'string', default: REPOSITORY },
      cache: { type: 'string', default: join(tmpdir(), `hub-deploy-bench-cache-${userInfo().uid}`) },
    },
  })
  refuseClashes(values)
  const { growth, profile, blocks, write, record } = values
  const repository = resolve(values.ours)
  requireBuilt(repository)
  const rounds = values.rounds === undefined ? undefined : parseRounds(values.rounds)
  const races = chooseRaces(values.only, values.quick, rounds)
  return {
    races,
    growth,
    profile,
    blocks,
    write,
    record,
    fileSystem: values.fs,
    repository,
    cache: resolve(values.cache),
  }
}

type Values = {
  growth: boolean
  profile: boolean
  blocks: boolean
  record: boolean
  write: boolean
  quick: boolean
} & {
  only?: string | undefined
  rounds?: string | undefined
}

function refuseClashes({ growth, profile, blocks, record, write, quick, only, rounds }: Values): void {
  if ([growth, profile, blocks, record].filter(Boolean).length > 1)
    throw new RangeError('Choose one of --growth, --profile, --blocks and --record.')
  const isPart = quick || only !== undefined || rounds !== undefined
  if ((growth || record) && isPart)
    throw new RangeError('--growth and --record do not run races: remove --quick, --only and --rounds.')
  if (write && !profile && isPart) throw new RangeError('--write needs all races: remove --quick, --only and --rounds.')
}

function requireBuilt(repository: string): void {
  if (existsSync(join(repository, 'dist', 'deploy.js'))) return
  throw new RangeError(`There is no dist/deploy.js in ${repository}: run \`npm run build\` there, or correct --ours.`)
}

function chooseRaces(only: string | undefined, quick: boolean, rounds: number | undefined): RacedWorkload[] {
  const chosen = only === undefined ? RACES : only.split(',').map(findRace)
  return chosen
    .filter(race => only !== undefined || !quick || race.quickRounds !== undefined)
    .map(race => ({ ...race, rounds: rounds ?? (quick ? (race.quickRounds ?? 1) : race.rounds) }))
}

function findRace(name: string): RacedWorkload {
  const race = RACES.find(candidate => candidate.name === name)
  if (race === undefined)
    throw new RangeError(`There is no race ${name}: choose from ${RACES.map(race => race.name).join(', ')}.`)
  return race
}

function parseRounds(text: string): number {
  const rounds = Number(text)
  if (!Number.isSafeInteger(rounds) || rounds < 1)
    throw new RangeError(`--rounds must be a whole number of at least 1, not ${text}.`)
  return rounds
}
