import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { constants, copyFile, link, mkdtemp, open, readFile, rm, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pipeline } from 'node:stream/promises'
import { type Pack, pack } from 'tar-stream'
import { z } from 'zod'
import { type ArtifactFile, artifactPath, syncFolder } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { DEK_KEY_FILE, KEY_BYTES } from '../project/encrypt.ts'
import { DATABASE_FILE, type Store } from '../store.ts'

const READ_CHUNK_BYTES = 256 * 1024

/** The number of artifacts in a backup, and the size of its file. */
interface BackedUp {
  readonly artifacts: number
  readonly bytes: number
}

/**
 * Writes everything that the hub stores to a new tar file that only its owner can read. Meanwhile, hubs may continue to
 * publish and accept reports. Copies a consistent state of the database, then the artifacts that the copy lists:
 * artifacts never change. The file appears as placeNew says. Throws HubError 409 if the file exists, and 400 if it
 * cannot be written or if the system cannot read a file of the hub. Throws HubError 500 if the database, an artifact,
 * or the key of sealed versions is missing or damaged. If the signal is aborted, rejects and leaves nothing behind.
 */
export async function backUp(store: Store, file: string, signal: AbortSignal): Promise<BackedUp> {
  const target = resolve(file)
  if ((await stat(target).catch(() => undefined)) !== undefined) throw alreadyThere(file)
  const folder = await mkdtemp(join(dirname(target), `.${basename(target)}-`)).catch(error => {
    throw cannotWrite(file, error)
  })
  try {
    const written = join(folder, 'backup.tar')
    const database = join(folder, DATABASE_FILE)
    const contents = copyDatabase(store, database)
    const result = await writeTar(store, { database, contents, written, signal })
    signal.throwIfAborted()
    await placeNew(written, target)
    await syncFolder(dirname(target))
    return result
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw alreadyThere(file)
    throw cannotWrite(file, error)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function copyDatabase(store: Store, to: string): Contents {
  try {
    store.db.prepare('VACUUM INTO ?').run(to)
    return readContents(to)
  } catch (error) {
    throw fileProblem(error, to) === undefined ? damagedDatabase(store.dataDir, error) : error
  }
}

interface Copy {
  /** The path of the copied database. */
  readonly database: string
  readonly contents: Contents
  readonly written: string
  readonly signal: AbortSignal
}

async function writeTar(store: Store, copy: Copy): Promise<BackedUp> {
  const { contents, written, signal } = copy
  const tar = pack()
  const output = createWriteStream(written, { flags: 'wx', mode: 0o600, flush: true })
  await Promise.all([pipeline(tar, output, { signal }), addAll(tar, store, copy)])
  return { artifacts: contents.artifacts.length, bytes: (await stat(written)).size }
}

async function addAll(tar: Pack, store: Store, { database, contents, signal }: Copy): Promise<void> {
  try {
    const sums = new Map<string, string>()
    const size = (await stat(database)).size
    sums.set(DATABASE_FILE, await addFile(tar, { name: DATABASE_FILE, path: database, size, signal }))
    // Read after the database: a hub makes the key before it stores anything that the key encrypts.
    const key = await readKey(store, contents)
    if (key !== undefined) sums.set(DEK_KEY_FILE, addBytes(tar, DEK_KEY_FILE, key))
    for (const { sha256, size } of contents.artifacts) {
      const path = artifactPath(store, sha256)
      if ((await sizeOf(path)) !== size) throw damaged(sha256)
      const name = `artifacts/${sha256}`
      sums.set(name, await addFile(tar, { name, path, size, signal }))
      if (sums.get(name) !== sha256) throw damaged(sha256)
    }
    addBytes(tar, SUMS_FILE, formatSums(sums))
    tar.finalize()
  } catch (error) {
    tar.destroy(error as Error)
    throw error
  }
}

/** Undefined if there is no such file. */
async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** Without sealed versions, there may be no key. */
async function readKey({ dataDir }: Store, { needsKey }: Contents): Promise<Buffer | undefined> {
  const path = join(dataDir, DEK_KEY_FILE)
  const key = await readFile(path).catch(error => {
    if (error.code === 'ENOENT' && !needsKey) return undefined
    throw noKey(`${path}: ${error.code}`)
  })
  if (key !== undefined && key.length !== KEY_BYTES) throw noKey(`${path} has ${key.length} bytes, not ${KEY_BYTES}`)
  return key
}

interface Added {
  readonly name: string
  readonly path: string
  readonly size: number
  readonly signal: AbortSignal
}

/** Resolves to the SHA-256 of the file. */
async function addFile(tar: Pack, file: Added): Promise<string> {
  const digest = createHash('sha256')
  const entry = tar.entry({ name: file.name, mode: 0o600, size: file.size })
  const bytes = createReadStream(file.path, { highWaterMark: READ_CHUNK_BYTES })
  bytes.on('data', chunk => digest.update(chunk))
  await pipeline(bytes, entry, { signal: file.signal })
  return digest.digest('hex')
}

function addBytes(tar: Pack, name: string, bytes: Buffer): string {
  tar.entry({ name, mode: 0o600 }, bytes)
  return createHash('sha256').update(bytes).digest('hex')
}

const artifactsSchema = z.array(z.object({ sha256: z.string().regex(/^[0-9a-f]{64}$/), size: z.number() }))

/** The files that a database needs next to it. */
export interface Contents {
  /** Each artifact is listed once. */
  readonly artifacts: readonly ArtifactFile[]
  /** True if sealed versions need the hub's own key. */
  readonly needsKey: boolean
}

/** Reads which files a copied database needs. Throws if the database is damaged or does not belong to a hub. */
export function readContents(database: string): Contents {
  const db = new DatabaseSync(database, { readOnly: true })
  try {
    const { integrity_check } = db.prepare('PRAGMA integrity_check').get() ?? {}
    if (integrity_check !== 'ok') throw new Error(String(integrity_check))
    const rows = db
      .prepare('SELECT sha256, size FROM versions UNION SELECT sha256, size FROM project_versions ORDER BY sha256')
      .all()
    const needsKey = db.prepare('SELECT 1 FROM project_versions LIMIT 1').get() !== undefined
    return { artifacts: artifactsSchema.parse(rows), needsKey }
  } finally {
    db.close()
  }
}

/** The last file of a backup: the SHA-256 of every other file, in the format of sha256sum. */
export const SUMS_FILE = 'SHA256SUMS'

export function formatSums(sums: ReadonlyMap<string, string>): Buffer {
  return Buffer.from([...sums].map(([name, sha256]) => `${sha256}  ${name}\n`).join(''))
}

/** The errors of file systems without hard links, such as exFAT and many network shares. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'])

/**
 * Makes a complete file appear at a second path on the same file system. Rejects with EEXIST if that path is taken. The
 * file appears complete or not at all, except on a file system without hard links: there, a crash may leave part of the
 * file.
 */
export async function placeNew(written: string, target: string, linkFile = link): Promise<void> {
  try {
    await linkFile(written, target)
  } catch (error) {
    if (!NO_LINKS.has((error as NodeJS.ErrnoException).code ?? '')) throw error
    await copyNew(written, target)
  }
}

async function copyNew(written: string, target: string): Promise<void> {
  const file = await open(target, 'wx', 0o600)
  try {
    await copyFile(written, target, constants.COPYFILE_FICLONE)
    await file.sync()
  } catch (error) {
    await rm(target, { force: true })
    throw error
  } finally {
    await file.close()
  }
}

function damagedDatabase(dataDir: string, error: unknown): HubError {
  return new HubError(
    500,
    `The hub's database ${join(dataDir, DATABASE_FILE)} is damaged (${(error as Error).message.replace(/\s+/g, ' ')}), and no backup was written: restore the last good backup.`,
  )
}

function damaged(sha256: string): HubError {
  return new HubError(
    500,
    `The hub's file for the artifact ${sha256} is missing or damaged, and no backup was written: publish the same bytes again, or copy artifacts/${sha256} from an earlier backup into the data folder. A yanked version cannot be published again. "npm run hub -- versions" and "npm run hub -- project versions" list each version with its SHA-256.`,
  )
}

function alreadyThere(file: string): HubError {
  return new HubError(409, `${file} already exists, and a backup never replaces a file: name a new file with --to.`)
}

function noKey(problem: string): HubError {
  return new HubError(
    500,
    `The key of all sealed projects is missing, unreadable or damaged (${problem}), and no backup was written: restore that file, or correct its permissions.`,
  )
}

/**
 * The refusal for a backup that cannot be written, or for a file of the hub that cannot be read. The message names that
 * file. Returns any other error unchanged.
 */
function cannotWrite(file: string, error: unknown): unknown {
  const problem = fileProblem(error, file)
  if (problem === undefined) return error
  return new HubError(
    400,
    `The backup ${file} cannot be written (${problem}): free some space, correct the permissions, or name a file in another folder.`,
  )
}

/** SQLite's codes for errors that are not the database's fault: READONLY, IOERR, FULL, CANTOPEN. */
const OF_THE_SYSTEM = new Set([8, 10, 13, 14])
const PRIMARY_CODE = 0xff

/** Names a file and the system's error: `/data/hub.sqlite: EACCES`. Undefined for an error that is not the system's. */
export function fileProblem(error: unknown, path: string): string | undefined {
  if (!(error instanceof Error)) return undefined
  const { errno, code, errcode, path: named = path } = error as NodeJS.ErrnoException & { errcode?: number }
  if (typeof errno === 'number') return `${named}: ${code}`
  const isSystems = typeof errcode === 'number' && OF_THE_SYSTEM.has(errcode & PRIMARY_CODE)
  return isSystems ? `${named}: ${error.message}` : undefined
}
