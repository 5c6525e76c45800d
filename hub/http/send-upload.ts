import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { isLoopbackHost } from './connections.ts'

/** A file to publish on a running hub. The headers contain the credential. */
export interface Sending {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** What a test replaces. All times are in milliseconds. */
export interface SendingTools {
  /** Waits before the next attempt at a busy hub. */
  readonly wait?: (ms: number) => Promise<unknown>
  /** Standard error, where an upload that takes longer than two seconds shows its progress. */
  readonly screen?: Screen
  /** Runs the work every two seconds until the returned function is called. */
  readonly everyTwoSeconds?: (work: () => void) => () => void
  /** The longest pause while the file is sent. */
  readonly stallMs?: number
  /** The longest time for the answer after that. */
  readonly answerMs?: number
}

const BUSY = 503
const NO_ROOM = 507
const MOST_ATTEMPTS = 11
const MOST_WAIT_SECONDS = 60

/**
 * Sends a file to a running hub, and returns the status of the answer with its body. Follows no redirects, and ends
 * when nothing is sent for two minutes, or when the answer takes ten. Waits for a busy hub at most ten times, each time
 * for at most a minute. If the hub refuses, throws HubError 400 with the hub's own words. Also throws HubError 400 for
 * any other unexpected answer, and for no answer.
 */
export async function sendUpload<T>(
  sending: Sending,
  schema: z.ZodType<T>,
  tools: SendingTools = {},
): Promise<{ readonly status: number; readonly answer: T }> {
  const { wait = waitForHub } = tools
  for (let attempt = 1; ; attempt++) {
    const { status, retryAfter, text } = await post(sending, tools).catch(error => {
      throw noAnswer(sending.url, error)
    })
    const body = parseJson(text)
    const { success, data } = schema.safeParse(body)
    if (isOk(status) && success) return { status, answer: data }
    if (status !== BUSY || attempt === MOST_ATTEMPTS) throw refused(sending.url, status, quoted(body))
    await wait(waitSeconds(retryAfter) * 1000)
  }
}

/**
 * Returns the base URL without a slash at the end. Throws HubError 400 unless it is an https URL, or http on this
 * machine, because a key is sent there. It may have a path, but no password and no query.
 */
export function requireSafeUrl(hubUrl: string): string {
  const url = URL.parse(hubUrl)
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopbackHost(bare(url.hostname)))
  const isBase = `${url?.username}${url?.password}${url?.search}${url?.hash}` === ''
  if (isSafe && isBase) return hubUrl.replace(/\/+$/, '')
  const shown = url === null ? hubUrl : `${url.protocol}//${url.host}${url.pathname}`
  throw new HubError(
    400,
    `The option --hub-url must be an https URL, or http on this machine, without a password and a query, not ${shown}.`,
  )
}

function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '')
}

async function waitForHub(ms: number): Promise<void> {
  console.error(`The hub answered 503, which usually means that it is busy: sending the file again in ${ms / 1000} s.`)
  await sleep(ms)
}

/** The seconds that the hub asks the client to wait, at most 60; also 60 if the hub names no number from 1 to 99. */
function waitSeconds(retryAfter: string | undefined): number {
  const asked = /^[1-9]\d?$/.exec(retryAfter ?? '')?.[0]
  return Math.min(Number(asked ?? MOST_WAIT_SECONDS), MOST_WAIT_SECONDS)
}

const PIECE_BYTES = 64 * 1024
const STALL_MS = 120_000
const ANSWER_MS = 600_000
const MAX_ANSWER_BYTES = 64 * 1024

interface RawAnswer {
  readonly status: number
  readonly retryAfter: string | undefined
  readonly text: string
}

async function post({ url, headers, body }: Sending, tools: SendingTools): Promise<RawAnswer> {
  const send = url.startsWith('https:') ? httpsRequest : httpRequest
  const length = { 'Content-Length': String(body.length), Connection: 'close' }
  const request = send(url, { method: 'POST', headers: { ...headers, ...length } })
  const progress = new Progress(body.length, tools)
  const endLimits = limitTime(request, tools)
  const pieces = Readable.from(piecesOf(body, progress), { highWaterMark: 1 })
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request.once('response', resolve)
      // A hub that has answered may also end the connection.
      request.on('error', reject)
      // Node.js reports neither of these as an error: an answer that switches protocols, and a connection that just ends.
      request.once('upgrade', (_, socket) => reject(socket.destroy() && new Error('the protocol was switched')))
      request.once('close', () => reject(new Error('no answer')))
      pieces.pipe(request)
    })
    const text = await beginningOf(response)
    return { status: response.statusCode ?? 0, retryAfter: response.headers['retry-after'], text }
  } finally {
    endLimits()
    progress.end()
    pieces.destroy()
    request.destroy()
  }
}

function* piecesOf(body: Uint8Array, progress: Progress): Generator<Uint8Array> {
  for (let at = 0; at < body.length; at += PIECE_BYTES) {
    yield body.subarray(at, at + PIECE_BYTES)
    progress.sent = Math.min(at + PIECE_BYTES, body.length)
  }
}

/** Ends a request that makes no progress, or whose answer takes too long, until the returned function is called. */
function limitTime(request: ClientRequest, { stallMs = STALL_MS, answerMs = ANSWER_MS }: SendingTools): () => void {
  let deadline: NodeJS.Timeout | undefined
  const end = (reason: string) => request.destroy(new Error(reason))
  const awaitAnswer = () => {
    request.setTimeout(0)
    deadline ??= setTimeout(() => end(`no complete answer for ${answerMs / 1000} s`), answerMs)
  }
  request.setTimeout(stallMs, () => end(`no progress for ${stallMs / 1000} s`))
  request.once('finish', awaitAnswer)
  request.once('response', awaitAnswer)
  return () => clearTimeout(deadline)
}

/** The first 64 KiB of an answer, or as much as arrives: a hub that refuses an upload may end the connection. */
async function beginningOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let length = 0
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      length += chunk.length
      if (length > MAX_ANSWER_BYTES) break
    }
  } catch {
    // The status is known.
  }
  return Buffer.concat(chunks).toString('utf8')
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

interface Screen {
  readonly isTTY?: boolean
  readonly write: (text: string) => unknown
}

/** Shows the progress of an upload every two seconds: in one line of a terminal, elsewhere in at most eleven lines. */
class Progress {
  sent = 0
  readonly #total: number
  readonly #screen: Screen
  readonly #stop: () => void
  #shown = -1

  constructor(total: number, { screen = process.stderr, everyTwoSeconds = everyTwoRealSeconds }: SendingTools) {
    this.#total = total
    this.#screen = screen
    this.#stop = everyTwoSeconds(() => this.#show())
  }

  end(): void {
    this.#stop()
    if (this.#screen.isTTY && this.#shown >= 0) this.#screen.write('\n')
  }

  #show(): void {
    const tenths = Math.floor((10 * this.sent) / this.#total)
    const size = `${(this.#total / 1e6).toFixed(1)} MB`
    const text =
      tenths === 10
        ? `Sent all of ${size}. Waiting until the hub has checked it.`
        : `Sent ${Math.floor((100 * this.sent) / this.#total)} % of ${size}.`
    if (this.#screen.isTTY) this.#screen.write(`\r${text}\u001b[K`)
    else if (tenths > this.#shown) this.#screen.write(`${text}\n`)
    this.#shown = tenths
  }
}

function everyTwoRealSeconds(work: () => void): () => void {
  const timer = setInterval(work, 2000).unref()
  return () => clearInterval(timer)
}

/** The errors of a connection that was never established, or not trusted. */
const BEFORE_SENDING = /^(?:ENOTFOUND|EAI_\w+|E(?:HOST|NET)UNREACH|EADDR\w+|EPROTO)$|CERT|TLS|SSL|SIGNED|UNABLE_TO/

function noAnswer(url: string, { code, syscall, message }: NodeJS.ErrnoException): HubError {
  const reason = code ?? message
  if (syscall === 'connect' || BEFORE_SENDING.test(reason))
    return new HubError(
      400,
      `${url} cannot be reached (${reason}): check --hub-url, that the hub is running, and, for https, that this machine trusts its certificate.`,
    )
  return new HubError(
    400,
    `The connection to ${url} broke (${reason}), so the version may or may not have been published: run the command again. A hub never publishes a version twice.`,
  )
}

const ADVICE: Readonly<Record<number, string>> = {
  401: ' Check the variable with the key, and that the key was not revoked.',
  404: ' Check --hub-url.',
  405: ' Check --hub-url.',
  408: ' The upload was too slow.',
  413: ' A proxy in front of the hub may have a lower limit than the hub.',
}
const REDIRECTED = ' This command follows no redirect: correct --hub-url.'

function refused(url: string, status: number, reason: string): HubError {
  const answered = `${url} answered ${status}${reason}`
  const advice = status >= 300 && status < 400 ? REDIRECTED : (ADVICE[status] ?? '')
  if ([BUSY, NO_ROOM].includes(status) || (!isOk(status) && status < 500))
    return new HubError(400, `${answered}: nothing was published.${advice}`)
  return new HubError(
    400,
    `${answered}, so the version may or may not have been published: check --hub-url, and run the command again. A hub never publishes a version twice.`,
  )
}

function isOk(status: number): boolean {
  return status >= 200 && status < 300
}

const refusalSchema = z.object({ error: z.string() }).or(z.object({ detail: z.string() }))

/** Quotes the hub's words on one line of a terminal, which a runner does not read as a command. */
function quoted(answer: unknown): string {
  const { data } = refusalSchema.safeParse(answer)
  if (data === undefined) return ''
  const text = 'error' in data ? data.error : data.detail
  return ` (${text
    .replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ')
    .replaceAll('##[', '## [')
    .slice(0, 1000)})`
}
