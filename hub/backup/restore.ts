import { createHash, randomUUID } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { constants, mkdir, open, readdir, readFile, realpath, rename, rm, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { extract } from 'tar-stream'
import { syncFolder } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { makeFolder, unreadable } from '../files.ts'
import { DEK_KEY_FILE, KEY_BYTES } from '../project/encrypt.ts'
import { DATABASE_FILE, openStore } from '../store.ts'
import { type Contents, fileProblem, formatSums, readContents, SUMS_FILE } from './backup.ts'

const ARTIFACT = /^artifacts\/[0-9a-f]{64}$/
const OTHER_FILES = new Set([DATABASE_FILE, DEK_KEY_FILE, SUMS_FILE])

interface Restored {
  readonly artifacts: number
  /** The time of the backup. */
  readonly madeAt: Date
}

/**
 * Restores a data folder from a backup. Throws HubError 409 if the folder is not empty, and 500 for a newer hub's
 * backup. Throws HubError 400 if the backup cannot be read or is not a complete backup of a hub, or if the system
 * cannot write a file. If the signal is aborted, rejects and leaves no file behind.
 */
export async function restoreBackup(file: string, dataDir: string, signal: AbortSignal): Promise<Restored> {
  await requireReadable(file)
  const folder = await newDataFolder(dataDir).catch(error => {
    throw refusal(dataDir, error)
  })
  try {
    return await restoreInto(folder, { file, signal })
  } catch (error) {
    throw refusal(dataDir, error)
  } finally {
    await folder.discard()
  }
}

/**
 * Throws HubError 400 if the backup is not a file that can be read. Must be called before a data folder is created, so
 * that the error names the backup and not the folder.
 */
async function requireReadable(file: string): Promise<void> {
  const refuse = (problem: string) => new HubError(400, `The backup ${file} ${problem}.`)
  const opened = await open(file, constants.O_RDONLY | constants.O_NONBLOCK).catch(error => {
    throw refuse(unreadable(error, 'name an existing one with --from'))
  })
  const found = await opened.stat().finally(() => opened.close())
  if (!found.isFile()) throw refuse('is not a regular file: name one that "backup" wrote')
}

interface Source {
  readonly file: string
  readonly signal: AbortSignal
}

async function restoreInto({ staging, settle }: NewDataFolder, { file, signal }: Source): Promise<Restored> {
  await mkdir(join(staging, 'artifacts'), { recursive: true, mode: 0o700 })
  const madeAt = await readTar({ file, signal }, staging).catch(error => {
    throw isOfTar(error) && !signal.aborted ? notABackup(file, 'is not a complete tar file') : error
  })
  const artifacts = await requireWhole(file, staging)
  for (const path of [join(staging, 'artifacts'), staging]) await syncFolder(path)
  signal.throwIfAborted()
  await settle()
  return { artifacts, madeAt }
}

/** True for an error of the tar reader, not of the system or of this program. */
function isOfTar(error: unknown): boolean {
  return !(error instanceof HubError) && fileProblem(error, '') === undefined
}

function refusal(dataDir: string, error: unknown): unknown {
  const problem = fileProblem(error, dataDir)
  if (problem === undefined) return error
  return new HubError(
    400,
    `Nothing was restored into ${dataDir} (${problem}): free some space, correct the permissions, or name another folder with --data.`,
  )
}

/** Returns the time of the backup. */
async function readTar({ file, signal }: Source, folder: string): Promise<Date> {
  const tar = extract()
  const reading = pipeline(createReadStream(file), tar, { signal })
  // An error of the pipeline also ends the loop below.
  reading.catch(() => {})
  const sums = new Map<string, string>()
  let last = ''
  let madeAt = new Date(0)
  for await (const entry of tar) {
    const { name, type, mtime } = entry.header
    const shown = `the ${type} ${JSON.stringify(name.slice(0, 100))}`
    if (type !== 'file' || !(ARTIFACT.test(name) || OTHER_FILES.has(name)))
      throw notABackup(file, `contains ${shown}, which does not belong in a backup`)
    if (sums.has(name)) throw notABackup(file, `contains ${shown} twice`)
    sums.set(name, await saveFile(entry as AsyncIterable<Uint8Array>, join(folder, name)))
    if (last === '' && mtime !== undefined) madeAt = mtime
    last = name
  }
  await reading
  await requireSums(file, { folder, sums, last })
  return madeAt
}

interface Unpacked {
  readonly folder: string
  readonly sums: Map<string, string>
  readonly last: string
}

async function requireSums(file: string, { folder, sums, last }: Unpacked): Promise<void> {
  if (last !== SUMS_FILE) throw notABackup(file, `does not end with ${SUMS_FILE}, so it was truncated or changed`)
  sums.delete(SUMS_FILE)
  const path = join(folder, SUMS_FILE)
  if (!formatSums(sums).equals(await readFile(path)))
    throw notABackup(file, `is damaged: its files do not match its ${SUMS_FILE}`)
  await rm(path)
}

/** Resolves to the SHA-256 of the file. */
async function saveFile(bytes: AsyncIterable<Uint8Array>, path: string): Promise<string> {
  const digest = createHash('sha256')
  const noted = async function* () {
    for await (const chunk of bytes) {
      digest.update(chunk)
      yield chunk
    }
  }
  await pipeline(noted, createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true }))
  return digest.digest('hex')
}

async function requireWhole(file: string, folder: string): Promise<number> {
  const { artifacts, needsKey } = await contentsOf(file, join(folder, DATABASE_FILE))
  const keyBytes = (await stat(join(folder, DEK_KEY_FILE)).catch(() => undefined))?.size
  if (keyBytes === undefined && needsKey)
    throw notABackup(file, `lacks ${DEK_KEY_FILE}, the key of its sealed projects`)
  if (keyBytes !== undefined && keyBytes !== KEY_BYTES)
    throw notABackup(file, `contains a ${DEK_KEY_FILE} of ${keyBytes} bytes, not ${KEY_BYTES}`)
  for (const { sha256, size } of artifacts)
    if ((await stat(join(folder, 'artifacts', sha256)).catch(() => undefined))?.size !== size)
      throw notABackup(file, `lacks the artifact ${sha256} of ${size} bytes`)
  requireKnownSchema(file, folder)
  return artifacts.length
}

/** Refuses the data of a newer hub. The error names the backup, because the folder is removed afterwards. */
function requireKnownSchema(file: string, folder: string): void {
  try {
    openStore(folder).close()
  } catch (error) {
    if (!(error instanceof HubError)) throw error
    throw new HubError(500, `A newer hub wrote the backup ${file}, and nothing was restored: update this hub.`)
  }
}

async function contentsOf(file: string, database: string): Promise<Contents> {
  if ((await stat(database).catch(() => undefined)) === undefined) throw notABackup(file, `lacks ${DATABASE_FILE}`)
  try {
    return readContents(database)
  } catch {
    throw notABackup(file, `contains a ${DATABASE_FILE} that is damaged or does not belong to a hub`)
  }
}

function notABackup(file: string, problem: string): HubError {
  return new HubError(400, `The file ${file} ${problem}, and nothing was restored: name a complete backup of a hub.`)
}

const REMAINS = '.restoring'

/** A folder to restore into, which becomes a hub's data folder only once it is settled. */
interface NewDataFolder {
  /** The folder that receives the files before they are settled. */
  readonly staging: string
  /** Moves all files into place, durably. */
  readonly settle: () => Promise<void>
  /** Removes everything that was not settled. */
  readonly discard: () => Promise<void>
}

/**
 * Prepares a folder to restore into. A folder that does not exist yet appears complete or not at all. An existing
 * folder stays, because it may be a mount point or behind a symlink: `settle` moves the files into it, with the
 * database last. Throws HubError 409 if the folder is not empty, and 400 if it cannot be read.
 */
async function newDataFolder(dataDir: string): Promise<NewDataFolder> {
  return (await isThere(dataDir)) ? inside(await realpath(dataDir)) : await nextTo(resolve(dataDir))
}

async function isThere(dataDir: string): Promise<boolean> {
  const found = await readdir(dataDir).catch(error => {
    if (error.code === 'ENOENT') return undefined
    throw new HubError(400, `${dataDir} cannot be read as a folder (${error.code}): name another one with --data.`)
  })
  // The root of a file system may contain lost+found.
  if (found === undefined || found.every(name => name === 'lost+found')) return found !== undefined
  const remains = found.filter(name => name.endsWith(REMAINS))
  if (remains.length > 0)
    throw new HubError(
      409,
      `The folder ${dataDir} contains the remains of a restore that was killed, which may include keys: remove ${remains.join(' and ')} from it, and restore again.`,
    )
  throw new HubError(
    409,
    `The folder ${dataDir} is not empty, and a restore replaces no files: name a new one with --data, or move this one away.`,
  )
}

function inside(folder: string): NewDataFolder {
  const staging = join(folder, `.${randomUUID()}${REMAINS}`)
  const placed: string[] = []
  const settle = async () => {
    const names = await readdir(staging)
    for (const name of [...names.filter(name => name !== DATABASE_FILE), DATABASE_FILE]) {
      await rename(join(staging, name), join(folder, name))
      placed.push(join(folder, name))
    }
    await syncFolder(folder)
    placed.length = 0
  }
  return { staging, settle, discard: () => removeAll([...placed, staging]) }
}

async function nextTo(target: string): Promise<NewDataFolder> {
  makeFolder(dirname(target))
  const staging = `${target}.${randomUUID()}${REMAINS}`
  const settle = async () => {
    await rename(staging, target)
    await syncFolder(dirname(target))
  }
  return { staging, settle, discard: () => removeAll([staging]) }
}

async function removeAll(paths: readonly string[]): Promise<void> {
  for (const path of paths) await rm(path, { recursive: true, force: true })
}
