import { existsSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join, resolve } from 'node:path'
import { UsageError } from '../hub/errors.ts'
import { RACES, type RacedWorkload } from './workloads.ts'

const REPOSITORY = join(import.meta.dirname, '..')

export interface Options {
  readonly races: readonly RacedWorkload[]
  readonly growth: boolean
  readonly profile: boolean
  readonly blocks: boolean
  readonly hub: boolean
  readonly project: boolean
  readonly write: boolean
  readonly record: boolean
  /** See `openFileSystem`. */
  readonly fileSystem: string | undefined
  /** The checkout whose `dist/` is measured: this one or another. */
  readonly repository: string
  /** The folder that keeps artifacts between runs. */
  readonly cache: string
}

export const PURPOSE = `Races dist/ against a shell script and a Python agent, so run \`npm run build\` first. Each race is a first install and an
update. S has about 60 files (0.4 MB), M 3,000 (30 MB), L 25,000 (400 MB), X one file of 1 GB; sealed-L is L, encrypted.
No result makes it fail.`

const RACE_NAMES = RACES.map(({ name }) => name).join(', ')
const DEFAULT_ROUNDS = RACES.map(({ name, rounds }) => `${name} ${rounds}`).join(', ')

export const OPTIONS = {
  quick: { type: 'boolean', default: false, help: 'only the small races, with few rounds' },
  only: { type: 'string', value: 'S,M', help: `only these races, of ${RACE_NAMES}` },
  rounds: { type: 'string', value: 'N', help: `the rounds of each race (default: ${DEFAULT_ROUNDS})` },
  write: {
    type: 'boolean',
    default: false,
    help: 'write the table of the races to docs/performance.md; needs all races',
  },
  fs: { type: 'string', value: 'WHERE', help: 'measure on tmpfs, loop (ext4 in a file; needs root) or a folder' },
  ours: { type: 'string', default: REPOSITORY, value: 'FOLDER', help: 'measure the dist/ of another checkout' },
  cache: {
    type: 'string',
    default: join(tmpdir(), `hub-deploy-bench-cache-${userInfo().uid}`),
    value: 'FOLDER',
    help: 'the folder that keeps artifacts between runs',
  },
  growth: { type: 'boolean', default: false, help: 'instead of the races: show how time and memory grow' },
  profile: { type: 'boolean', default: false, help: 'instead of the races: show where the time goes' },
  blocks: { type: 'boolean', default: false, help: 'instead of the races: show the longest block of the event loop' },
  hub: {
    type: 'boolean',
    default: false,
    help: 'instead of the races: show how the reference hub performs under load',
  },
  project: {
    type: 'boolean',
    default: false,
    help: 'instead of the races: show how long the switch of a project of 40 parts takes',
  },
  record: {
    type: 'boolean',
    default: false,
    help: 'instead of the races: record the size and the cold start of dist/,\nwhich a test compares with later ones',
  },
} as const

/**
 * Throws UsageError for an unknown race, a wrong number of rounds, options that exclude each other, and a checkout
 * without `dist/`.
 */
export function chooseOptions(values: Values): Options {
  refuseClashes(values)
  const { growth, profile, blocks, hub, project, write, record } = values
  const repository = resolve(values.ours)
  requireBuilt(repository)
  const rounds = values.rounds === undefined ? undefined : parseRounds(values.rounds)
  const races = chooseRaces(values.only, values.quick, rounds)
  return {
    races,
    growth,
    profile,
    blocks,
    hub,
    project,
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
  hub: boolean
  project: boolean
  record: boolean
  write: boolean
  quick: boolean
  ours: string
  cache: string
} & {
  only?: string | undefined
  rounds?: string | undefined
  fs?: string | undefined
}

function refuseClashes({ growth, profile, blocks, hub, project, record, write, quick, only, rounds }: Values): void {
  if ([growth, profile, blocks, hub, project, record].filter(Boolean).length > 1)
    throw new UsageError('Choose one of --growth, --profile, --blocks, --hub, --project and --record.')
  const isPart = quick || only !== undefined || rounds !== undefined
  if ((growth || hub || project || record) && isPart)
    throw new UsageError(
      '--growth, --hub, --project and --record do not run races: remove --quick, --only and --rounds.',
    )
  if (write && (growth || profile || blocks || hub || project || isPart))
    throw new UsageError('--write needs all races: remove --quick, --only, --rounds and the options for other results.')
}

function requireBuilt(repository: string): void {
  if (existsSync(join(repository, 'dist', 'deploy.js'))) return
  throw new UsageError(`There is no dist/deploy.js in ${repository}: run \`npm run build\` there, or correct --ours.`)
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
    throw new UsageError(`There is no race ${name}: choose from ${RACES.map(race => race.name).join(', ')}.`)
  return race
}

function parseRounds(text: string): number {
  const rounds = Number(text)
  if (!Number.isSafeInteger(rounds) || rounds < 1)
    throw new UsageError(`--rounds must be a whole number of at least 1, not ${text}.`)
  return rounds
}
