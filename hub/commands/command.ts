import { readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { Worker } from 'node:worker_threads'
import { HubError, UsageError } from '../errors.ts'
import { unreadable } from '../files.ts'
import { DATABASE_FILE, openStore, type Store } from '../store.ts'
import { asksForHelp, parseCommandLine } from './command-line.ts'

export interface Command {
  /** One line about the command's purpose. */
  readonly summary: string
  /** The text for `--help`. */
  readonly usage: string
  /** Throws UsageError for a wrong command line. */
  readonly run: (args: string[]) => Promise<void>
}

const DATA_FOLDER = '.hub-data'
/** The default is in the folder where the program was started, which is the clone for `npm run hub`. */
export const DATA_OPTION = { data: { type: 'string', default: resolve(DATA_FOLDER) } } as const
export const DATA_DEFAULT = `${DATA_FOLDER} in the clone`
export const DATA_USAGE = `  --data DIR       the data folder (default ${DATA_DEFAULT})`
/** For the help of a command whose standard output a script reads. */
export const SILENT_USAGE = 'In a script, use npm run --silent hub: otherwise, npm adds its own lines.'

/** Reads the file that an option names. Throws HubError 400 if it cannot be read. */
export function readGivenFile(option: string, path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new HubError(400, `The file ${path} of --${option} ${unreadable(error)}.`)
  }
}

const SILENT_MS = 10_000
const SAY_STILL_RUNNING = `
  const { writeSync } = require('node:fs')
  const { what, everyMs } = require('node:worker_threads').workerData
  const startedAt = performance.now()
  const seconds = () => Math.round((performance.now() - startedAt) / 1000)
  setInterval(() => writeSync(2, what + ': still running after ' + seconds() + ' s\\n'), everyMs)
`

/** Writes a line to stderr every ten seconds until the work ends, from another thread: packing a file blocks this one. */
export async function sayingStillRunning<T>(what: string, work: () => Promise<T>, everyMs = SILENT_MS): Promise<T> {
  const other = new Worker(SAY_STILL_RUNNING, { eval: true, execArgv: [], workerData: { what, everyMs } })
  // If that thread fails, only its lines are missing.
  other.on('error', () => {})
  other.unref()
  try {
    return await work()
  } finally {
    await other.terminate()
  }
}

/**
 * Runs the work on the store in a data folder, and always closes the store. Creates the folder and the store if
 * necessary, and says so after the work.
 */
export async function withStore<T>(dataDir: string, work: (store: Store) => T | Promise<T>): Promise<T> {
  const isNew = !hasStore(dataDir)
  const store = openStore(dataDir)
  try {
    const done = await work(store)
    if (isNew)
      console.error(
        `Note: ${dataDir} contained no hub, so this command created one. If that was a mistake, correct --data.`,
      )
    return done
  } finally {
    store.close()
  }
}

/**
 * Works like withStore, but creates nothing. Throws HubError 404 if the folder contains no hub, and 400 if the folder
 * cannot be read.
 */
export async function withExistingStore<T>(dataDir: string, work: (store: Store) => T | Promise<T>): Promise<T> {
  if (hasStore(dataDir)) return await withStore(dataDir, work)
  throw new HubError(404, `The data folder ${dataDir} contains no hub: name the data folder of a hub with --data.`)
}

function hasStore(dataDir: string): boolean {
  try {
    statSync(join(dataDir, DATABASE_FILE))
    return true
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
    throw new HubError(400, `The data folder ${dataDir} ${unreadable(error)}.`)
  }
}

/** A group of commands. You type the group's name before a command's name. */
export interface CommandGroup {
  readonly name: string
  readonly summary: string
  readonly commands: Readonly<Record<string, Command | CommandGroup>>
}

/**
 * Runs the command that the first arguments name, or prints the help of that command or of a group. Throws UsageError
 * if the command is missing or unknown, and as the command does.
 */
export async function runGroup(group: CommandGroup, [name, ...args]: string[]): Promise<void> {
  if (name !== undefined && asksForHelp([name])) return console.log(overview(group))
  const command = name !== undefined && Object.hasOwn(group.commands, name) ? group.commands[name] : undefined
  if (command === undefined) throw new UsageError(describeUnknown(group, name))
  if ('commands' in command) return await runGroup(command, args)
  if (asksForHelp(args)) return console.log(`Usage: ${command.usage}`)
  await command.run(args)
}

function overview({ name, commands }: CommandGroup): string {
  const lines = Object.entries(commands).map(([command, { summary }]) => `  ${command.padEnd(12)}${summary}`)
  return `Usage: ${name} COMMAND [options]\n\n${lines.join('\n')}\n\n"COMMAND --help" explains each of them.`
}

function describeUnknown(group: CommandGroup, name: string | undefined): string {
  const problem = name === undefined ? 'The command is missing' : `There is no command ${JSON.stringify(name)}`
  return `${problem}: "${group.name}" has ${Object.keys(group.commands).join(', ')}.`
}

interface List<T> {
  /** The words after `npm run hub --`. */
  readonly name: string
  readonly summary: string
  readonly heading: readonly string[]
  readonly find: (store: Store) => readonly T[]
  readonly toRow: (found: T) => readonly string[]
}

/** A command that prints a table of rows from the data folder, below a heading. */
export function listCommand<T>({ name, summary, heading, find, toRow }: List<T>): Command {
  return {
    summary,
    usage: `npm run hub -- ${name} [options]\n\n${DATA_USAGE}`,
    run: async args => {
      const { values } = parseCommandLine(args, DATA_OPTION)
      const found = await withExistingStore(values.data, find)
      console.log(formatTable([heading, ...found.map(toRow)]))
    },
  }
}

/** Rows of text in columns, for a terminal; the first row is the heading. */
function formatTable(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map(row => row[column]?.length ?? 0)))
  const lines = rows.map(row => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
  return lines.map(line => line.trimEnd()).join('\n')
}

/** A count with its noun: `1 artifact`, `2 artifacts`. */
export function countInWords(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
