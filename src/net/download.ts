import { createHash, createHmac, type Hmac } from 'node:crypto'
import { ftruncateSync, writeSync } from 'node:fs'
import { ArchiveError, ConfigError, DeploymentError, errnoOf } from '../core/errors.ts'
import { type AnswerHead, headOf, makeCall } from './call.ts'
import { type Exchange, type Headers, unusableAnswer } from './exchange.ts'
import { encodedBody, isEncoded, readAnswerText } from './json.ts'
import type { WireSettings } from './settings.ts'

export interface DownloadRequest {
  url: string
  /** The URL that the operator gave. Set if the hub chose `url`, whose address is then judged like a redirect's. */
  hub?: string
  /** Sent only to the URL's own origin: dropped as soon as a redirect leaves its scheme, host or port. */
  credentials?: Headers
  headers?: Headers
  /** Names of headers that the URL's own origin may send with a redirect; that origin's header goes first. */
  originHeaders?: readonly string[]
  /** Open for writing. Emptied before each body that is saved, and written from position 0. Never closed here. */
  fd: number
  maxBytes: number
  /** True if the input max-artifact-bytes cannot raise `maxBytes`. */
  isFixedMax?: boolean
  /** Overall, including retries and waits. */
  timeoutMs: number
  /** Not empty. Its UTF-8 bytes are the key of an HMAC-SHA256 over the exact bytes that arrive. */
  hmacSecret?: string
  onProgress?: (received: number, total: number | undefined) => void
}

export type DownloadAnswer = DownloadedFile | RefusedDownload

export interface DownloadedFile extends AnswerHead {
  ok: true
  status: 200
  /** Bytes. */
  size: number
  /** Lowercase hex. */
  sha256: string
  hmacSha256?: Buffer
  attempts: number
}

/** An answer other than 2xx, after retries; the caller decides what it means. */
export interface RefusedDownload extends AnswerHead {
  ok: false
  /** Parsed; undefined if that is not possible (see `AnswerText`). */
  body: unknown
  /** The body's first 2,048 characters, cleaned, for messages. */
  text: string
  attempts: number
}

/**
 * Streams the URL's body to the descriptor in constant memory. Throws ConfigError `insecure_url` or `invalid_input`,
 * ArchiveError `archive_too_large`, DeploymentError `disk_full` or `host_not_writable`, and ArtifactError `network`,
 * `timeout` or `bad_response`. The error is also `network` for a body that keeps breaking off; it is `bad_response` for
 * bad redirects, an answer that is not HTTP, an encoded body, and a 2xx other than 200. Throws the reason of the
 * settings' signal once that signal is aborted.
 */
export async function download(request: DownloadRequest, settings: WireSettings): Promise<DownloadAnswer> {
  if (request.hmacSecret === '') throw new ConfigError('invalid_input', 'The signing secret is empty: set it.')
  const call = {
    method: 'GET' as const,
    url: request.url,
    headers: { accept: '*/*', ...request.headers },
    credentials: request.credentials,
    body: undefined,
    hub: request.hub,
    retry: 'transient' as const,
    followRedirects: true,
    originHeaders: request.originHeaders ?? [],
    timeoutMs: request.timeoutMs,
    timeoutInput: 'timeout-minutes',
    receive: (exchange: Exchange) => receiveFile(exchange, request),
  }
  return await makeCall(call, settings)
}

/**
 * Writes a whole chunk of an artifact at a position of a file. Throws DeploymentError `disk_full` or
 * `host_not_writable`.
 */
export function writeChunkSync(fd: number, chunk: Buffer, position: number): void {
  try {
    for (let done = 0; done < chunk.length; ) done += writeSync(fd, chunk, done, chunk.length - done, position + done)
  } catch (error) {
    throw toWriteError(error)
  }
}

type Unnumbered<T> = T extends unknown ? Omit<T, 'attempts'> : never

async function receiveFile(exchange: Exchange, request: DownloadRequest): Promise<Unnumbered<DownloadAnswer>> {
  const head = headOf(exchange)
  if (head.status < 200 || head.status > 299) {
    const { body, text } = await readAnswerText(exchange)
    return { ...head, ok: false, body, text }
  }
  refuseUnusable(exchange)
  refuseTooLarge(exchange, request, declaredSize(exchange) ?? 0)
  emptyFile(request.fd)
  return { ...head, ok: true, status: 200, ...(await saveBody(exchange, request)) }
}

function refuseUnusable(exchange: Exchange): void {
  if (exchange.status !== 200) throw unusableAnswer(exchange, 'a file (HTTP 200)', `HTTP ${exchange.status}`)
  if (isEncoded(exchange)) throw unusableAnswer(exchange, 'the exact bytes that were signed', encodedBody(exchange))
}

function declaredSize(exchange: Exchange): number | undefined {
  const declared = exchange.headers['content-length']
  return declared === undefined ? undefined : Number(declared)
}

async function saveBody(exchange: Exchange, request: DownloadRequest) {
  const sha256 = createHash('sha256')
  const hmac = request.hmacSecret === undefined ? undefined : createHmac('sha256', request.hmacSecret)
  let size = 0
  for await (const chunk of allowedChunks(exchange, request)) {
    sha256.update(chunk)
    hmac?.update(chunk)
    writeChunkSync(request.fd, chunk, size)
    size += chunk.length
  }
  return { size, sha256: sha256.digest('hex'), ...hmacField(hmac) }
}

/** Yields the body's chunks, none of them beyond `maxBytes`. */
async function* allowedChunks(exchange: Exchange, request: DownloadRequest): AsyncGenerator<Buffer> {
  const total = declaredSize(exchange)
  let received = 0
  for await (const chunk of exchange.body) {
    received += chunk.length
    refuseTooLarge(exchange, request, received)
    yield chunk
    request.onProgress?.(received, total)
  }
}

function hmacField(hmac: Hmac | undefined): { hmacSha256?: Buffer } {
  return hmac === undefined ? {} : { hmacSha256: hmac.digest() }
}

function emptyFile(fd: number): void {
  try {
    ftruncateSync(fd, 0)
  } catch (error) {
    throw toWriteError(error)
  }
}

function refuseTooLarge(exchange: Exchange, { maxBytes, isFixedMax = false }: DownloadRequest, bytes: number): void {
  if (bytes <= maxBytes) return
  const found = `The artifact from ${exchange.server} has at least ${bytes} bytes, more than the ${maxBytes} that`
  throw new ArchiveError(
    'archive_too_large',
    isFixedMax
      ? `${found} this action can process, so it was refused. The publisher must make the artifact smaller.`
      : `${found} max-artifact-bytes leaves for it, so it was refused. Raise max-artifact-bytes if the artifact is meant to be that large.`,
  )
}

/** Explains a system error that occurred while a download was written. */
export function toWriteError(error: unknown): DeploymentError {
  const errno = errnoOf(error) ?? 'unknown error'
  return errno === 'ENOSPC' || errno === 'EDQUOT'
    ? new DeploymentError(
        'disk_full',
        `No space left for the artifact (${errno}): free some space in the runner's temporary folder.`,
        { cause: error },
      )
    : new DeploymentError(
        'host_not_writable',
        `The artifact could not be written (${errno}): check the runner's temporary folder.`,
        { cause: error },
      )
}
