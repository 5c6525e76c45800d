import { createHash } from 'node:crypto'
import { type IncomingMessage, request } from 'node:http'

export interface Call {
  readonly url: string
  readonly method?: 'GET' | 'POST'
  readonly headers?: Readonly<Record<string, string>>
  readonly json?: object
}

/** An answer, and the milliseconds from the call until the answer's first byte and until its end. */
export interface Answer {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  /** Only the start of a body that is longer than 64 KiB. */
  readonly body: string
  readonly sha256: string
  readonly firstByteMs: number
  readonly endMs: number
}

const KEPT_BYTES = 64 * 1024

/** Sends one request on a separate connection, as another host would. Rejects if the answer is missing or cut off. */
export function timedRequest({ url, method = 'GET', headers = {}, json }: Call): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now()
    const type = json === undefined ? {} : { 'Content-Type': 'application/json' }
    const sent = request(url, { agent: false, method, headers: { ...headers, ...type } }, response => {
      read(response, startedAt).then(resolve, reject)
    })
    sent.on('error', reject)
    sent.end(json === undefined ? undefined : JSON.stringify(json))
  })
}

async function read(response: IncomingMessage, startedAt: number): Promise<Answer> {
  const digest = createHash('sha256')
  const kept: Buffer[] = []
  let length = 0
  let firstByteMs: number | undefined
  for await (const chunk of response as AsyncIterable<Buffer>) {
    firstByteMs ??= performance.now() - startedAt
    digest.update(chunk)
    if (length < KEPT_BYTES) kept.push(chunk)
    length += chunk.length
  }
  const endMs = performance.now() - startedAt
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: Buffer.concat(kept).toString(),
    sha256: digest.digest('hex'),
    firstByteMs: firstByteMs ?? endMs,
    endMs,
  }
}
