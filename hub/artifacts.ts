import { createHash, randomUUID } from 'node:crypto'
import { type FileHandle, open, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { ReadableStream } from 'node:stream/web'
import { setImmediate } from 'node:timers/promises'
import type { Context } from 'hono'
import { errorBody, HubError } from './errors.ts'
import type { Store } from './store.ts'

/** Limits how much work runs at once. Waiting work starts in the order in which it arrived. */
export class FewAtATime {
  readonly #most: number
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(most: number) {
    this.#most = most
  }

  /** Resolves or rejects as the work does. The next work starts in either case. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running === this.#most) await new Promise<void>(resolve => this.#waiting.push(resolve))
    else this.#running += 1
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      // The work that has waited longest takes the place of the work that has just ended.
      if (next !== undefined) next()
      else this.#running -= 1
    }
  }
}

const READ_CHUNK_BYTES = 256 * 1024
/**
 * The most reads at once, for all downloads together. Each turn of the event loop sends the pieces that were read, and
 * accepts only one connection. With more reads, each turn would take longer, and other hosts would wait for seconds.
 */
const READS_AT_ONCE = 2

const REPAIR = 'publish the same bytes again, or copy the file from a backup'

/** Bytes that the hub serves. `sha256`, in lowercase hex, is also their file name in the data folder. */
export interface ArtifactFile {
  readonly sha256: string
  readonly size: number
}

const reads = new FewAtATime(READS_AT_ONCE)

/** Stores the bytes under their SHA-256, durably, with mode 0600. No reader ever sees an incomplete file. */
export async function keepArtifact(store: Store, sha256: string, bytes: Uint8Array): Promise<void> {
  const path = artifactPath(store, sha256)
  const temporary = `${path}.${randomUUID()}.tmp`
  try {
    await writeDurably(temporary, bytes)
    await rename(temporary, path)
    await syncFolder(join(store.dataDir, 'artifacts'))
  } finally {
    await rm(temporary, { force: true })
  }
}

/** The first byte of a part of a file, and the byte after the last one. */
interface Range {
  readonly start: number
  readonly end: number
}

/**
 * Answers a GET with the stored bytes, or with the one range that the request asks for, and a HEAD with the headers of
 * all bytes. The ETag is strong. If the request has an If-Range, the range counts only for exactly this ETag. Answers
 * 416 if the range begins after the last byte. Throws as streamArtifact does.
 */
export async function answerArtifact(
  c: Context,
  store: Store,
  file: ArtifactFile,
  headers: Record<string, string>,
): Promise<Response> {
  const etag = `"${file.sha256}"`
  const range = c.req.method === 'HEAD' ? undefined : parseRange(c, etag, file.size)
  if (range !== undefined && range.start >= range.end) {
    const message = `The range begins after the last of the ${file.size} bytes.`
    return c.json(errorBody(message), 416, { 'Content-Range': `bytes */${file.size}` })
  }
  const { start, end } = range ?? { start: 0, end: file.size }
  const bytes = await streamArtifact(store, file, { start, end })
  const own = { ...headers, 'Accept-Ranges': 'bytes', 'Content-Length': String(end - start), ETag: etag }
  if (range !== undefined) {
    const partial = { ...own, 'Content-Range': `bytes ${start}-${end - 1}/${file.size}` }
    return c.body(bytes as globalThis.ReadableStream, 206, partial)
  }
  if (c.req.method !== 'HEAD') return c.body(bytes as globalThis.ReadableStream, 200, own)
  await bytes.cancel()
  return c.body(null, 200, own)
}

/** Returns undefined for several ranges and for a malformed one, which are ignored (RFC 9110, section 14.2). */
function parseRange(c: Context, etag: string, size: number): Range | undefined {
  const [, first = '', last = ''] = /^bytes=(\d*)-(\d*)$/i.exec(c.req.header('range') ?? '') ?? []
  if ((first === '' && last === '') || (c.req.header('if-range') ?? etag) !== etag) return undefined
  if (first === '') return { start: Math.max(0, size - Number(last)), end: size }
  if (last !== '' && Number(last) < Number(first)) return undefined
  return { start: Number(first), end: last === '' ? size : Math.min(Number(last) + 1, size) }
}

/**
 * Returns the stored bytes, or a range of them, as a stream, which the caller must read or cancel. Throws HubError 500
 * if the file is missing, cannot be opened, or has a different size.
 */
export async function streamArtifact(
  store: Store,
  { sha256, size }: ArtifactFile,
  range: Range = { start: 0, end: size },
): Promise<ReadableStream> {
  const path = artifactPath(store, sha256)
  const file = await open(path).catch(error => {
    const problem =
      error.code === 'ENOENT' ? 'does not exist: ' : `cannot be read (${error.code}): correct the permissions, `
    throw unavailable(path, `${problem}${REPAIR}`)
  })
  const found = await file.stat()
  if (found.size === size) return streamFile(file, range)
  await file.close()
  throw unavailable(path, `has ${found.size} bytes, not ${size}: ${REPAIR}`)
}

function unavailable(path: string, problem: string): HubError {
  return new HubError(500, `The artifact ${path} ${problem}.`)
}

/** The path of the bytes with this SHA-256. */
export function artifactPath(store: Store, sha256: string): string {
  return join(store.dataDir, 'artifacts', sha256)
}

/** Avoids Node.js' own conversion of a file into a stream, which copies all bytes once more. */
function streamFile(file: FileHandle, { start, end }: Range): ReadableStream {
  let position = start
  return new ReadableStream({
    async pull(controller) {
      const chunk = Buffer.allocUnsafeSlow(Math.min(READ_CHUNK_BYTES, end - position))
      const { bytesRead } = await reads.run(() => readOrClose(file, chunk, position))
      position += bytesRead
      controller.enqueue(chunk.subarray(0, bytesRead))
      if (bytesRead > 0 && position < end) return
      await file.close()
      if (position === end) controller.close()
      else controller.error(new Error('The file became shorter while it was sent.'))
    },
    cancel: () => file.close(),
  })
}

/** Closes the file if a read fails, because the stream then calls neither `pull` nor `cancel` again. */
async function readOrClose(file: FileHandle, chunk: Buffer, position: number): Promise<{ readonly bytesRead: number }> {
  try {
    return await file.read(chunk, 0, chunk.length, position)
  } catch (error) {
    await file.close()
    throw error
  }
}

export const PIECE_BYTES = 1024 * 1024

/** Yields views of at most 1 MiB of the bytes, and lets the event loop run between them. */
export async function* piecesOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
    await setImmediate()
    yield bytes.subarray(at, at + PIECE_BYTES)
  }
}

/** The SHA-256 of the bytes, in lowercase hex. Lets the event loop run meanwhile. */
export async function hashOf(bytes: Uint8Array): Promise<string> {
  const hash = createHash('sha256')
  for await (const piece of piecesOf(bytes)) hash.update(piece)
  return hash.digest('hex')
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

/** Makes every creation, renaming and removal in a folder durable. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}
