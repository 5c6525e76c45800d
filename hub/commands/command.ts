import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util'
import { HubError, UsageError } from '../errors.ts'
import { openStore, type Store } from '../store.ts'

export interface Command {
  /** What it does, in one line. */
  readonly summary: string
  /** The text for `--help`. */
  readonly usage: string
  /** Throws UsageError for a command line it does not understand. */
  readonly run: (args: string[]) => Promise<void>
}

export const DATA_OPTION = { data: { type: 'string', default: '.hub-data' } } as const
export const DATA_USAGE = '  --data DIR       the data folder (default .hub-data)'

/** The options and positional arguments, strictly. Throws UsageError for an unknown, repeated or incomplete one. */
export function parseCommandLine<T extends ParseArgsOptionsConfig>(args: string[], options: T, positionals = 0) {
  const parsed = parseOrThrow(args, options)
  if (parsed.positionals.length > positionals) {
    throw new UsageError(`The argument ${JSON.stringify(parsed.positionals[positionals])} is not understood.`)
  }
  return parsed
}

/** The option's value. Throws UsageError when it was not given. */
export function requireOption(name: string, value: string | undefined): string {
  if (!value) throw new UsageError(`The option --${name} is missing.`)
  return value
}

/** The bytes of the file that an option names. Throws HubError 400 when it cannot be read. */
export function readGivenFile(option: string, path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const found = code === 'ENOENT' ? 'is not there' : `cannot be read (${code})`
    throw new HubError(400, `The option --${option} names the file ${path}, which ${found}: correct the path.`)
  }
}

/** Runs the work on the data folder, made where there is none, and closes it however the work ends. */
export async function withStore<T>(dataDir: string, work: (store: Store) => T | Promise<T>): Promise<T> {
  const store = openStore(dataDir)
  try {
    return await work(store)
  } finally {
    store.close()
  }
}

/** The same for work that needs what a hub has kept: throws HubError 404, and makes nothing, where there is no hub. */
export async function withExistingStore<T>(dataDir: string, work: (store: Store) => T | Promise<T>): Promise<T> {
  if (existsSync(join(dataDir, 'hub.sqlite'))) return withStore(dataDir, work)
  throw new HubError(404, `There is no hub in the data folder ${dataDir}: --data names another one.`)
}

function parseOrThrow<T extends ParseArgsOptionsConfig>(args: string[], options: T) {
  try {
    return parseArgs({ args, options, allowPositionals: true, strict: true })
  } catch (error) {
    throw new UsageError(describeMistake(error, Object.keys(options)))
  }
}

function describeMistake(error: unknown, known: readonly string[]): string {
  const [sentence = ''] = (error instanceof Error ? error.message : String(error)).split('\n')
  if ((error as NodeJS.ErrnoException).code !== 'ERR_PARSE_ARGS_UNKNOWN_OPTION') return sentence
  const [unknown = ''] = /'-[^']*'/.exec(sentence) ?? []
  return `The option ${unknown.slice(1, -1)} is unknown: this command knows ${known.map(name => `--${name}`).join(', ')}.`
}
