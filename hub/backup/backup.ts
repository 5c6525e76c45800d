import { createHash } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { type Pack, pack } from 'tar-stream'
import { artifactPath, syncFolder } from '../artifacts.ts'
import { DEK_KEY_FILE, KEY_BYTES } from '../project/dek-cipher.ts'
import { DATABASE_FILE, type Store } from '../store.ts'
import { alreadyThere, cannotWrite, damaged, damagedDatabase, noKey } from './backup-refusals.ts'
import { type Contents, readContents } from './contents.ts'
import { fileProblem } from './file-problem.ts'
import { placeNew } from './place-new.ts'
import { formatSums, SUMS_FILE } from './sums.ts'

const READ_CHUNK_BYTES = 256 * 1024

/** The number of artifacts in a backup, and the size of its file. */
export interface BackedUp {
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
