import { createHash, createHmac, type Hmac } from 'node:crypto'
import { ftruncateSync } from 'node:fs'
import { freeChunk } from '../core/archive/free-buffer.ts'
import { ArchiveError, ArtifactError, ConfigError } from '../core/errors.ts'
import { isEncoded, readAnswerText } from './answer-text.ts'
import { BlockWriter, toWriteError } from './block-writer.ts'
import { type AnswerHead, makeCall } from './call.ts'
import type { Exchange } from './exchange.ts'
import type { Headers } from './headers.ts'
import type { WireSettings } from './settings.ts'

export interface DownloadRequest {
  url: string
  /** Sent to the URL's own origin only: dropped as soon as a redirect leaves its scheme, host or port. */
  credentials?: Headers
  headers?: Headers
  /** Open for writing; emptied before each attempt, written from position 0, never closed here. */
  fd: number
  maxBytes: number
  /** Overall, retries and waits included. */
  timeoutMs: number
  /** Not empty. The HMAC-SHA256 under its UTF-8 bytes is computed over the exact bytes on the way. */
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

/** An answer other than 2xx, after retries; what it means is the caller's to say. */
export interface RefusedDownload extends AnswerHead {
  ok: false
  /** Parsed; undefined when it is empty or not JSON. */
  body: unknown
  /** The body's first 2,048 characters, cleaned, for messages. */
  text: string
  attempts: number
}

/**
 * Streams the URL's body to the descriptor in constant memory. Throws ConfigError `insecure_url` or `invalid_input`; ArtifactError `network`
 * (also when the body keeps breaking off), `timeout`, `bad_response` (redirects, an encoded body, a 2xx other than 200);
 * ArchiveError `archive_too_large`; DeploymentError `disk_full` or `host_not_writable`.
 */
export async function download(request: DownloadRequest, settings: WireSettings): Promise<DownloadAnswer> {
  if (request.hmacSecret === '') throw new ConfigError('invalid_input', 'The signing secret is empty: set it.')
  const call = {
    method: 'GET' as const,
    url: request.url,
    headers: { accept: '*/*', ...request.headers },
    credentials: request.credentials,
    body: undefined,
    retry: 'transient' as const,
    followRedirects: true,
    timeoutMs: request.timeoutMs,
  }
  return makeCall(call, settings, (exchange, head) => receiveFile(exchange, head, request))
}

type Unnumbered<T> = T extends unknown ? Omit<T, 'attempts'> : never

async function receiveFile(
  exchange: Exchange,
  head: AnswerHead,
  request: DownloadRequest,
): Promise<Unnumbered<DownloadAnswer>> {
  if (head.status < 200 || head.status > 299) {
    const { body, text } = await readAnswerText(exchange)
    return { ...head, ok: false, body, text }
  }
  const total = readDeclaredSize(exchange, request.maxBytes)
  empty(request.fd)
  return { ...head, ok: true, status: 200, ...(await saveBody(exchange, total, request)) }
}

function readDeclaredSize(exchange: Exchange, maxBytes: number): number | undefined {
  if (exchange.status !== 200) throw unusable(exchange, 'a file (HTTP 200)', `HTTP ${exchange.status}`)
  if (isEncoded(exchange))
    throw unusable(exchange, 'the exact bytes that were signed', 'an encoded body (Content-Encoding)')
  const declared = exchange.headers['content-length']
  if (declared === undefined) return undefined
  refuseTooLarge(Number(declared), maxBytes, exchange)
  return Number(declared)
}

async function saveBody(exchange: Exchange, total: number | undefined, request: DownloadRequest) {
  const sha256 = createHash('sha256')
  const hmac = request.hmacSecret === undefined ? undefined : createHmac('sha256', request.hmacSecret)
  const writer = new BlockWriter(request.fd, block => {
    sha256.update(block)
    hmac?.update(block)
  })
  const size = await pump(exchange, writer, total, request)
  return { size, sha256: sha256.digest('hex'), ...hmacField(hmac) }
}

async function pump(
  exchange: Exchange,
  writer: BlockWriter,
  total: number | undefined,
  request: DownloadRequest,
): Promise<number> {
  let received = 0
  try {
    for await (const chunk of exchange.body) {
      received += chunk.length
      refuseTooLarge(received, request.maxBytes, exchange)
      await writer.add(chunk)
      freeChunk(chunk)
      request.onProgress?.(received, total)
    }
    await writer.finish()
    return received
  } finally {
    await writer.settle()
  }
}

function hmacField(hmac: Hmac | undefined): { hmacSha256?: Buffer } {
  return hmac === undefined ? {} : { hmacSha256: hmac.digest() }
}

function empty(fd: number): void {
  try {
    ftruncateSync(fd, 0)
  } catch (error) {
    throw toWriteError(error)
  }
}

function refuseTooLarge(bytes: number, maxBytes: number, exchange: Exchange): void {
  if (bytes <= maxBytes) return
  throw new ArchiveError(
    'archive_too_large',
    `${exchange.url.origin} serves ${bytes} bytes or more, max-artifact-bytes allows ${maxBytes}: nothing was installed. Raise it if the artifact is meant to be that large.`,
  )
}

function unusable(exchange: Exchange, expected: string, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${exchange.url.origin} should answer with ${expected}, found ${found}: check the hub.`,
  )
}
