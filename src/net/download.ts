import { createHash, createHmac, type Hash, type Hmac } from 'node:crypto'
import { ftruncateSync, writeSync } from 'node:fs'
import { ArchiveError, ConfigError, DeploymentError, errnoOf } from '../core/errors.ts'
import { type AnswerHead, headOf, makeCall } from './call.ts'
import { type Exchange, type Headers, TransientError, unusableAnswer } from './exchange.ts'
import { encodedBody, isEncoded, readAnswerText } from './json.ts'
import type { WireSettings } from './settings.ts'

export interface DownloadRequest {
  url: string
  /** The URL that the operator gave. Set if the hub chose `url`, whose address is then judged like a redirect's. */
  hub?: string
  /** Sent only to the URL's own origin: dropped as soon as a redirect leaves its scheme, host or port. */
  credentials?: Headers
  headers?: Headers
  /**
   * Names of headers about the file that the URL's own origin may send with a redirect; that origin's header goes first.
   */
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
 * Streams the URL's body to the descriptor in constant memory. If the body breaks off, the next attempt asks for the
 * rest (RFC 9110, sections 13.1.5 and 14), and starts over if the answer may be the rest of another file. Throws ConfigError `insecure_url` or `invalid_input`,
 * ArchiveError `archive_too_large`, DeploymentError `disk_full` or `host_not_writable`, and ArtifactError `network`,
 * `timeout` or `bad_response`. The error is also `network` for a body that keeps breaking off; it is `bad_response` for
 * bad redirects, an answer that is not HTTP, an encoded body, and a 2xx other than 200. Throws the reason of the
 * settings' signal once that signal is aborted.
 */
export async function download(request: DownloadRequest, settings: WireSettings): Promise<DownloadAnswer> {
  if (request.hmacSecret === '') throw new ConfigError('invalid_input', 'The signing secret is empty: set it.')
  const receiver = new FileReceiver(request)
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
    attemptHeaders: () => receiver.headersForRest(),
    kept: () => receiver.kept,
    receive: (exchange: Exchange) => receiver.receive(exchange),
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

/** The bytes of a file so far: those of an answer with HTTP 200, and of the ranges that continued them. */
interface PartialFile {
  /** Of the HTTP 200. */
  readonly head: AnswerHead
  readonly total: number | undefined
  readonly sha256: Hash
  readonly hmac: Hmac | undefined
  size: number
}

/** Receives a file in one or more attempts. */
class FileReceiver {
  readonly #request: DownloadRequest
  /** What the next attempt may continue: undefined without a strong ETag or a known size. */
  #partial: PartialFile | undefined

  constructor(request: DownloadRequest) {
    this.#request = request
  }

  get kept(): number {
    return this.#partial?.size ?? 0
  }

  headersForRest(): Headers {
    if (this.#partial === undefined) return {}
    const { size, head } = this.#partial
    return { range: `bytes=${size}-`, 'if-range': head.headers['etag'] ?? '' }
  }

  async receive(exchange: Exchange): Promise<Unnumbered<DownloadAnswer>> {
    const { status } = exchange
    const fault = this.#partial && faultOfRest(exchange, this.#partial, this.#request)
    if (fault !== undefined) throw this.#startOver(exchange, fault)
    if (status < 200 || status > 299) {
      const { body, text } = await readAnswerText(exchange)
      return { ...headOf(exchange), ok: false, body, text }
    }
    const file = status === 206 && this.#partial !== undefined ? this.#partial : this.#begin(exchange)
    await saveBody(exchange, file, this.#request)
    if (file.size !== (file.total ?? file.size)) throw this.#startOver(exchange, 'a body of another size')
    return { ...file.head, ok: true, status: 200, size: file.size, ...digestsOf(file) }
  }

  #begin(exchange: Exchange): PartialFile {
    this.#partial = undefined
    const { hmacSecret, fd } = this.#request
    const total = declaredSize(exchange)
    refuseUnusable(exchange)
    refuseTooLarge(exchange, this.#request, total ?? 0)
    emptyFile(fd)
    const hmac = hmacSecret === undefined ? undefined : createHmac('sha256', hmacSecret)
    const file = { head: headOf(exchange), total, sha256: createHash('sha256'), hmac, size: 0 }
    if (total !== undefined && STRONG_ETAG.test(exchange.headers['etag'] ?? '')) this.#partial = file
    return file
  }

  #startOver(exchange: Exchange, found: string): TransientError {
    this.#partial = undefined
    const { code, message } = unusableAnswer(exchange, 'the rest of the file', found)
    return new TransientError(code, message, { sent: true })
  }
}

const STRONG_ETAG = /^"[!\x23-\x7e]*"$/

/**
 * Describes an answer to a request for the rest of the file after which the download must start over; undefined for
 * the rest, the whole file, and any other refusal. A redirect's target may have expired.
 */
function faultOfRest(
  exchange: Exchange,
  { head, size, total }: PartialFile,
  { url, originHeaders = [] }: DownloadRequest,
): string | undefined {
  const { status, headers } = exchange
  const isRedirected = exchange.url.href !== new URL(url).href
  if ([412, 416].includes(status) || (isRedirected && [403, 404, 410].includes(status))) return `HTTP ${status}`
  if (status !== 206) return undefined
  if (isEncoded(exchange)) return encodedBody(exchange)
  const isNext = headers['content-range'] === `bytes ${size}-${Number(total) - 1}/${total}`
  const isSame = originHeaders.every(name => headers[name] === undefined || headers[name] === head.headers[name])
  return isNext && isSame && headers['etag'] === head.headers['etag'] ? undefined : 'another range or file (HTTP 206)'
}

function refuseUnusable(exchange: Exchange): void {
  if (exchange.status !== 200) throw unusableAnswer(exchange, 'a file (HTTP 200)', `HTTP ${exchange.status}`)
  if (isEncoded(exchange)) throw unusableAnswer(exchange, 'the exact bytes that were signed', encodedBody(exchange))
}

function declaredSize(exchange: Exchange): number | undefined {
  const declared = exchange.headers['content-length']
  return declared === undefined ? undefined : Number(declared)
}

/** Appends the body to the file, but nothing beyond `maxBytes`. */
async function saveBody(exchange: Exchange, file: PartialFile, request: DownloadRequest): Promise<void> {
  for await (const chunk of exchange.body) {
    refuseTooLarge(exchange, request, file.size + chunk.length)
    file.sha256.update(chunk)
    file.hmac?.update(chunk)
    writeChunkSync(request.fd, chunk, file.size)
    file.size += chunk.length
    request.onProgress?.(file.size, file.total)
  }
}

function digestsOf({ sha256, hmac }: PartialFile): Pick<DownloadedFile, 'sha256' | 'hmacSha256'> {
  return { sha256: sha256.digest('hex'), ...(hmac === undefined ? {} : { hmacSha256: hmac.digest() }) }
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
