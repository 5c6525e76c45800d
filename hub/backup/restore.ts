import { createHash, randomUUID } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { extract } from 'tar-stream'
import { syncFolder } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { DEK_KEY_FILE } from '../project/dek-cipher.ts'
import { DATABASE_FILE, openStore } from '../store.ts'
import { listArtifacts } from './artifact-list.ts'
import { formatSums, SUMS_FILE } from './sums.ts'

const ARTIFACT = /^artifacts\/[0-9a-f]{64}$/
const OTHER_FILES = new Set([DATABASE_FILE, DEK_KEY_FILE, SUMS_FILE])

/**
 * Makes a data folder from a backup. It appears complete or not at all. Throws HubError 409 when the folder has anything
 * in it, 404 when there is no such backup, and 400 for a file that is not a whole backup of a hub.
 */
export async function restore(file: string, dataDir: string): Promise<{ readonly artifacts: number }> {
  const target = resolve(dataDir)
  await requireEmpty(target, dataDir)
  if (!(await stat(file).catch(() => undefined))?.isFile())
    throw new HubError(404, `There is no file ${file}: name a backup with --from.`)
  await mkdir(dirname(target), { recursive: true })
  const folder = `${target}.${randomUUID()}.restoring`
  try {
    await mkdir(join(folder, 'artifacts'), { recursive: true, mode: 0o700 })
    await readTar(file, folder).catch(error => {
      throw error instanceof HubError ? error : notABackup(file, 'is not a whole tar file')
    })
    const artifacts = await requireWhole(file, folder)
    for (const path of [join(folder, 'artifacts'), folder]) await syncFolder(path)
    await rename(folder, target)
    await syncFolder(dirname(target))
    return { artifacts }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function requireEmpty(target: string, dataDir: string): Promise<void> {
  const found = await readdir(target).catch(error => {
    if (error.code === 'ENOENT') return []
    throw new HubError(400, `${dataDir} is no folder that can be read (${error.code}): name another one with --data.`)
  })
  if (found.length > 0)
    throw new HubError(
      409,
      `The folder ${dataDir} is not empty, and restoring replaces nothing: name a new one with --data, or move this one away.`,
    )
}

async function readTar(file: string, folder: string): Promise<void> {
  const tar = extract()
  const reading = pipeline(createReadStream(file), tar)
  // Its error ends the loop below as well.
  reading.catch(() => {})
  const sums = new Map<string, string>()
  let last = ''
  for await (const entry of tar) {
    const { name, type } = entry.header
    if (type !== 'file' || !(ARTIFACT.test(name) || OTHER_FILES.has(name)) || sums.has(name))
      throw notABackup(file, `contains ${JSON.stringify(name.slice(0, 100))}, which no backup has`)
    sums.set(name, await saveFile(entry as AsyncIterable<Uint8Array>, join(folder, name)))
    last = name
  }
  await reading
  await requireSums(file, { folder, sums, last })
}

interface Restored {
  readonly folder: string
  readonly sums: Map<string, string>
  readonly last: string
}

async function requireSums(file: string, { folder, sums, last }: Restored): Promise<void> {
  if (last !== SUMS_FILE) throw notABackup(file, `is cut: it does not end with ${SUMS_FILE}`)
  sums.delete(SUMS_FILE)
  const path = join(folder, SUMS_FILE)
  if (!formatSums(sums).equals(await readFile(path)))
    throw notABackup(file, `is damaged: its ${SUMS_FILE} does not match`)
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
  const artifacts = await listOf(file, join(folder, DATABASE_FILE))
  for (const { sha256, size } of artifacts)
    if ((await stat(join(folder, 'artifacts', sha256)).catch(() => undefined))?.size !== size)
      throw notABackup(file, `lacks the artifact ${sha256}`)
  // Refuses what a newer hub has written.
  openStore(folder).close()
  return artifacts.length
}

async function listOf(file: string, database: string) {
  if ((await stat(database).catch(() => undefined)) === undefined) throw notABackup(file, `lacks ${DATABASE_FILE}`)
  try {
    return listArtifacts(database)
  } catch {
    throw notABackup(file, `contains a ${DATABASE_FILE} that is damaged`)
  }
}

function notABackup(file: string, problem: string): HubError {
  return new HubError(400, `The file ${file} ${problem}, and nothing was restored: name a whole backup of a hub.`)
}
