import { readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { HubError } from '../errors.ts'
import { DATABASE_FILE, openStore, type Store } from '../store.ts'
import { unreadable } from '../unreadable.ts'

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
