import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { HubError } from '../errors.ts'
import { DATABASE_FILE, openStore, type Store } from '../store.ts'

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
    throw new HubError(400, `The file ${path} of --${option} ${problemOf(error)}: correct the path.`)
  }
}

/** Runs the work on the data folder and always closes it. Creates it if necessary, and says so. */
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

/** Does the same for work that needs existing data: throws HubError 404, and creates nothing, if there is no hub. */
export async function withExistingStore<T>(dataDir: string, work: (store: Store) => T | Promise<T>): Promise<T> {
  if (hasStore(dataDir)) return await withStore(dataDir, work)
  throw new HubError(404, `The data folder ${dataDir} contains no hub: name another one with --data.`)
}

function hasStore(dataDir: string): boolean {
  return existsSync(join(dataDir, DATABASE_FILE))
}

function problemOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException
  switch (code) {
    case 'ENOENT':
      return 'does not exist'
    case 'EISDIR':
      return 'is a folder'
    default:
      return `cannot be read (${code})`
  }
}
