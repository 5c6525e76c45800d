import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { link, mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { type Pack, pack } from 'tar-stream'
import { type ArtifactFile, artifactPath, syncFolder } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { DEK_KEY_FILE } from '../project/dek-cipher.ts'
import { DATABASE_FILE, type Store } from '../store.ts'
import { listArtifacts } from './artifact-list.ts'
import { formatSums, SUMS_FILE } from './sums.ts'

const READ_CHUNK_BYTES = 256 * 1024

/** What a backup contains. */
export interface BackedUp {
  readonly artifacts: number
  readonly bytes: number
}

/**
 * Writes everything in the data folder to a new tar file that only its owner can read, while hubs may go on publishing
 * and taking reports: the database is copied as it is at one moment, and then the artifacts that it names, which never
 * change. The file appears complete or not at all. Throws HubError 409 when it exists, 400 when it cannot be written, and
 * 500 when an artifact is missing or damaged.
 */
export async function backUp(store: Store, file: string): Promise<BackedUp> {
  const target = resolve(file)
  if ((await stat(target).catch(() => undefined)) !== undefined) throw alreadyThere(file)
  const folder = await mkdtemp(join(dirname(target), `.${basename(target)}-`)).catch(error => {
    throw cannotWrite(file, error)
  })
  try {
    const written = join(folder, 'backup.tar')
    const database = join(folder, DATABASE_FILE)
    store.db.prepare('VACUUM INTO ?').run(database)
    const result = await writeTar(store, { database, written })
    await link(written, target).catch(error => {
      throw error.code === 'EEXIST' ? alreadyThere(file) : cannotWrite(file, error)
    })
    await syncFolder(dirname(target))
    return result
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

interface Copy {
  /** The copied database. */
  readonly database: string
  readonly written: string
}

async function writeTar(store: Store, { database, written }: Copy): Promise<BackedUp> {
  const artifacts = listArtifacts(database)
  const tar = pack()
  const output = createWriteStream(written, { flags: 'wx', mode: 0o600, flush: true })
  await Promise.all([pipeline(tar, output), addAll(tar, { store, database, artifacts })])
  return { artifacts: artifacts.length, bytes: (await stat(written)).size }
}

interface Content {
  readonly store: Store
  readonly database: string
  readonly artifacts: readonly ArtifactFile[]
}

async function addAll(tar: Pack, { store, database, artifacts }: Content): Promise<void> {
  try {
    const sums = new Map<string, string>()
    const size = (await stat(database)).size
    sums.set(DATABASE_FILE, await addFile(tar, { name: DATABASE_FILE, path: database, size }))
    // Read after the database: a hub makes the key before it stores what the key encrypts.
    const key = await readFile(join(store.dataDir, DEK_KEY_FILE)).catch(() => undefined)
    if (key !== undefined) sums.set(DEK_KEY_FILE, addBytes(tar, DEK_KEY_FILE, key))
    for (const { sha256, size } of artifacts) {
      const path = artifactPath(store, sha256)
      if ((await stat(path).catch(() => undefined))?.size !== size) throw damaged(sha256)
      const name = `artifacts/${sha256}`
      sums.set(name, await addFile(tar, { name, path, size }))
      if (sums.get(name) !== sha256) throw damaged(sha256)
    }
    addBytes(tar, SUMS_FILE, formatSums(sums))
    tar.finalize()
  } catch (error) {
    tar.destroy(error as Error)
    throw error
  }
}

/** Resolves to the SHA-256 of the file. */
async function addFile(tar: Pack, file: { name: string; path: string; size: number }): Promise<string> {
  const digest = createHash('sha256')
  const entry = tar.entry({ name: file.name, mode: 0o600, size: file.size })
  const bytes = createReadStream(file.path, { highWaterMark: READ_CHUNK_BYTES })
  bytes.on('data', chunk => digest.update(chunk))
  await pipeline(bytes, entry)
  return digest.digest('hex')
}

function addBytes(tar: Pack, name: string, bytes: Buffer): string {
  tar.entry({ name, mode: 0o600 }, bytes)
  return createHash('sha256').update(bytes).digest('hex')
}

function damaged(sha256: string): HubError {
  return new HubError(
    500,
    `The hub's file for the artifact ${sha256} is missing or damaged, and no backup was written: publish that version again ("npm run hub -- versions" says which it is).`,
  )
}

function alreadyThere(file: string): HubError {
  return new HubError(409, `The file ${file} exists, and a backup replaces none: name another one with --to.`)
}

function cannotWrite(file: string, { code }: NodeJS.ErrnoException): HubError {
  return new HubError(
    400,
    `The backup ${file} cannot be written (${code}): name a file in a folder that you can write.`,
  )
}
