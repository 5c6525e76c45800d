import { randomUUID } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import type { ReadableStream } from 'node:stream/web'
import { HubError } from './errors.ts'
import type { Store } from './store.ts'

const READ_CHUNK_BYTES = 256 * 1024

/** Bytes the hub serves; `sha256` is their lowercase hex SHA-256, and their name in the data folder. */
export interface ArtifactFile {
  readonly sha256: string
  readonly size: number
}

/** Keeps the bytes under their SHA-256, durably, mode 0600; no reader ever sees a part of them. */
export async function keepArtifact(store: Store, sha256: string, bytes: Uint8Array): Promise<void> {
  const place = artifactPath(store, sha256)
  const temporary = `${place}.${randomUUID()}.tmp`
  try {
    await writeDurably(temporary, bytes)
    await rename(temporary, place)
    await syncFolder(join(store.dataDir, 'artifacts'))
  } finally {
    await rm(temporary, { force: true })
  }
}

/** The kept bytes as a stream, which its reader ends or cancels. Throws HubError 500 when the file is not whole. */
export async function streamArtifact(store: Store, { sha256, size }: ArtifactFile): Promise<ReadableStream> {
  const file = await open(artifactPath(store, sha256)).catch(() => undefined)
  if (file !== undefined && (await file.stat()).size === size) {
    return Readable.toWeb(file.createReadStream({ highWaterMark: READ_CHUNK_BYTES }))
  }
  await file?.close()
  throw new HubError(500, `The hub's file of the artifact ${sha256} is missing or cut: publish it again.`)
}

function artifactPath(store: Store, sha256: string): string {
  return join(store.dataDir, 'artifacts', sha256)
}

async function writeDurably(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(bytes)
    await file.sync()
  } finally {
    await file.close()
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}
