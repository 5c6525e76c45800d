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
  /** See `openGround`. */
  readonly fileSystem: string | undefined
  /** Whose `dist/` is measured: a built checkout, this one or another. */
  readonly repository: string
  /** Where artifacts are kept from run to run. */
  readonly cache: string
}

export const USAGE = `Usage: npm run bench -- [options]
  S, M, L, X are first install and update of about 60 files/0.4 MB, 3,000/30 MB, 25,000/400 MB, and one file of 1 GB; sealed-L is L
  in the encrypted format. What is measured is dist/: run \`npm run build\` first. Exits with 0 also where a target is missed.
  --quick          only the small races, with few rounds
  --only S,M       only these of ${RACES.map(({ name }) => name).join(', ')}
  --rounds N       so many rounds of each race; default: ${RACES.map(({ name, rounds }) => `${name} ${rounds}`).join(', ')}
  --growth         how time and memory grow with files and bytes, instead of the races
  --profile        where the time goes, instead of the races
  --blocks         how long the event loop is blocked at most, instead of the races
  --record         records the size and the cold start of dist/ that tests hold later ones against, instead of the races
  --write          writes the results into docs/performance.md; the races only all at once
  --fs WHERE       tmpfs, loop (ext4 in a file; needs root) or a folder
  --ours FOLDER    the built repository that is measured, instead of this one
  --cache FOLDER   where artifacts are kept from run to run`

/** Throws TypeError for an unknown option, RangeError for an unknown race, a number of rounds that is none, options that clash, and a checkout that is not built. */
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
    throw new RangeError('Of --growth, --profile, --blocks and --record there can be one.')
  const isPart = quick || only !== undefined || rounds !== undefined
  if ((growth || record) && isPart)
    throw new RangeError('--growth and --record know no --quick, --only and --rounds: leave these out.')
  if (write && !profile && isPart)
    throw new RangeError('--write takes the races all at once: leave out --quick, --only and --rounds.')
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
  if (race === undefined) throw new RangeError(`There is no race ${name}.`)
  return race
}

function parseRounds(text: string): number {
  const rounds = Number(text)
  if (!Number.isSafeInteger(rounds) || rounds < 1) throw new RangeError(`--rounds takes a number from 1, not ${text}.`)
  return rounds
}
