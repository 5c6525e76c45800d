import assert from 'node:assert/strict'
import { createHash, createHmac, randomBytes } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { describe, it, type TestContext } from 'node:test'
import { MAX_RETRIES, UNCOUNTED_BYTES, type WireOptions } from '../../src/net/settings.ts'
import { type Handler, type LoopbackServer, serve } from './loopback-server.ts'
import { createManualTimers, createTestedWire, openPrivateFile } from './tested-wire.ts'

const SIZE = 1000
const CUT = 400
const [FILE, OTHER] = [randomBytes(SIZE), randomBytes(SIZE)]
const LIMITS = { maxBytes: 2 * SIZE, timeoutMs: 600_000 }
const WHOLE = { etag: '"file"', 'content-length': SIZE, 'x-signature': 'of the file' }
const REST = {
  etag: '"file"',
  'content-length': SIZE - CUT,
  'content-range': `bytes ${CUT}-${SIZE - 1}/${SIZE}`,
}

type Sent = Record<string, string | number | undefined>

/** Sends a head, in which undefined removes a header, and a body. */
function send(response: ServerResponse, status: number, headers: Sent = {}, body: Buffer | string = ''): void {
  const sent = Object.entries(headers).filter(([, value]) => value !== undefined)
  response.writeHead(status, Object.fromEntries(sent) as Record<string, string>).end(body)
}

/** Sends the beginning of a body, and breaks the connection once the client has written that many bytes. */
class Breaking {
  #socket: IncomingMessage['socket'] | undefined
  #at = Number.POSITIVE_INFINITY

  send({ socket }: IncomingMessage, response: ServerResponse, headers: Sent, body: Buffer, at: number): void {
    ;[this.#socket, this.#at] = [socket, at]
    const sent = Object.entries(headers).filter(([, value]) => value !== undefined)
    response.writeHead(200, Object.fromEntries(sent) as Record<string, string>).write(body)
  }

  readonly onProgress = (received: number): void => {
    if (received < this.#at) return
    this.#at = Number.POSITIVE_INFINITY
    this.#socket?.destroy()
  }
}

/** Fetches a file whose first answer breaks off after CUT bytes. The handler gives the other answers. */
async function fetchBroken(t: TestContext, { first = WHOLE, next }: { first?: Sent; next: Handler }) {
  const breaking = new Breaking()
  const server = await serve(t, (request, response, nth) =>
    nth === 1 ? breaking.send(request, response, first, FILE.subarray(0, CUT), CUT) : next(request, response, nth),
  )
  const file = openPrivateFile(t)
  const { onProgress } = breaking
  const wire = createTestedWire()
  const request = { url: `${server.url}/`, originHeaders: ['x-signature'], hmacSecret: 'secret', fd: file.fd }
  const answer = await wire.download({ ...request, onProgress, ...LIMITS })
  return { answer, server, wire, bytes: file.read() }
}

/** What each request asked for: `Range` and `If-Range`, or the whole file. */
function asked({ requests }: LoopbackServer): string[] {
  return requests.map(({ headers }) => (headers.range ? `${headers.range} if ${headers['if-range']}` : 'whole'))
}

const ASKS_FOR_REST = `bytes=${CUT}- if "file"`

describe('a download that breaks off', () => {
  const continued: [name: string, headers: Sent][] = [
    ['no other header', {}],
    ['the same signature', { 'x-signature': 'of the file' }],
    ['the encoding identity', { 'content-encoding': 'identity' }],
    ['an unknown length', { 'content-length': undefined }],
  ]
  for (const [name, headers] of continued) {
    it(`continues with a 206 for exactly the rest, with ${name}`, async t => {
      const { answer, server, bytes } = await fetchBroken(t, {
        next: (_, response) => send(response, 206, { ...REST, ...headers }, FILE.subarray(CUT)),
      })
      assert.ok(answer.ok)
      assert.deepEqual(asked(server), ['whole', ASKS_FOR_REST])
      assert.ok(bytes.equals(FILE))
      assert.deepEqual(
        [answer.status, answer.size, answer.sha256, answer.attempts],
        [200, SIZE, createHash('sha256').update(FILE).digest('hex'), 2],
      )
      assert.deepEqual(answer.hmacSha256, createHmac('sha256', 'secret').update(FILE).digest())
      assert.equal(answer.headers['x-signature'], 'of the file')
    })
  }

  const others: [name: string, status: number, headers: Sent, body?: Buffer | string][] = [
    ['another offset', 206, { ...REST, 'content-range': `bytes ${CUT - 1}-${SIZE - 1}/${SIZE}` }],
    ['a later offset', 206, { ...REST, 'content-range': `bytes ${CUT + 1}-${SIZE - 1}/${SIZE}` }],
    ['another total', 206, { ...REST, 'content-range': `bytes ${CUT}-${SIZE - 1}/${SIZE + 1}` }],
    ['an unknown total', 206, { ...REST, 'content-range': `bytes ${CUT}-${SIZE - 1}/*` }],
    ['a shorter range', 206, { ...REST, 'content-range': `bytes ${CUT}-${SIZE - 2}/${SIZE}` }],
    ['another unit', 206, { ...REST, 'content-range': `lines ${CUT}-${SIZE - 1}/${SIZE}` }],
    ['two ranges', 206, { ...REST, 'content-range': [0, 1].map(() => REST['content-range']).join(', ') }],
    ['no Content-Range', 206, { ...REST, 'content-range': undefined }],
    [
      'multipart/byteranges',
      206,
      { etag: '"file"', 'content-type': 'multipart/byteranges; boundary=b' },
      `--b\r\nContent-Range: ${REST['content-range']}\r\n\r\nx\r\n--b--\r\n`,
    ],
    ['an encoded body', 206, { ...REST, 'content-encoding': 'gzip' }],
    ['another ETag', 206, { ...REST, etag: '"other"' }],
    ['the ETag as a weak one', 206, { ...REST, etag: 'W/"file"' }],
    ['no ETag', 206, { ...REST, etag: undefined }],
    ['another signature', 206, { ...REST, 'x-signature': 'of another file' }],
    ['fewer bytes than it says', 206, { ...REST, 'content-length': undefined }, FILE.subarray(CUT, -1)],
    [
      'more bytes than it says',
      206,
      { ...REST, 'content-length': undefined },
      Buffer.concat([FILE.subarray(CUT), OTHER.subarray(0, 1)]),
    ],
    ['412', 412, {}],
    ['416', 416, { 'content-range': `bytes */${SIZE}` }],
  ]
  for (const [name, status, headers, body = FILE.subarray(CUT)] of others) {
    it(`starts over after ${name}`, async t => {
      const { answer, server, bytes } = await fetchBroken(t, {
        next: (_, response, nth) =>
          nth === 2 ? send(response, status, headers, body) : send(response, 200, WHOLE, OTHER),
      })
      assert.ok(answer.ok)
      assert.deepEqual(asked(server), ['whole', ASKS_FOR_REST, 'whole'])
      assert.ok(bytes.equals(OTHER))
      assert.equal(answer.sha256, createHash('sha256').update(OTHER).digest('hex'))
      assert.equal(answer.attempts, 3)
    })
  }

  for (const [name, etag] of [
    ['ignores ranges', '"file"'],
    ['has another file now', '"other"'],
  ] as const) {
    it(`saves the whole file that a server sends if it ${name}`, async t => {
      const shorter = OTHER.subarray(0, CUT - 1)
      const { answer, server, bytes } = await fetchBroken(t, {
        next: (_, response) => send(response, 200, { etag, 'x-signature': 'of the other' }, shorter),
      })
      assert.deepEqual(asked(server), ['whole', ASKS_FOR_REST])
      assert.ok(bytes.equals(shorter))
      assert.equal(answer.headers['x-signature'], 'of the other')
    })
  }

  const unsafe: [name: string, first: Sent][] = [
    ['no ETag', { ...WHOLE, etag: undefined }],
    ['a weak ETag', { ...WHOLE, etag: 'W/"file"' }],
    ['a malformed ETag', { ...WHOLE, etag: 'file' }],
    ['an ETag with a quote in it', { ...WHOLE, etag: '"a", "b"' }],
    ['no length', { ...WHOLE, 'content-length': undefined }],
  ]
  for (const [name, first] of unsafe) {
    it(`starts over at once if the first answer has ${name}`, async t => {
      const { server, bytes } = await fetchBroken(t, {
        first,
        next: (_, response) => send(response, 200, WHOLE, OTHER),
      })
      assert.deepEqual(asked(server), ['whole', 'whole'])
      assert.ok(bytes.equals(OTHER))
    })
  }

  it('forgets what it has once another file begins to arrive', async t => {
    const breaking = new Breaking()
    const server = await serve(t, (request, response, nth) => {
      if (nth === 1) breaking.send(request, response, WHOLE, FILE.subarray(0, CUT), CUT)
      else if (nth === 2) breaking.send(request, response, { 'content-length': SIZE }, OTHER.subarray(0, CUT), CUT)
      else send(response, 200, WHOLE, FILE)
    })
    const file = openPrivateFile(t)
    const request = { url: server.url, fd: file.fd, ...LIMITS, onProgress: breaking.onProgress }
    await createTestedWire().download(request)
    assert.deepEqual(asked(server), ['whole', ASKS_FOR_REST, 'whole'])
    assert.ok(file.read().equals(FILE))
  })

  it('keeps what it has while the server is busy', async t => {
    const { server, bytes, answer } = await fetchBroken(t, {
      next: (_, response, nth) =>
        nth === 2 ? send(response, 503, {}, 'busy') : send(response, 206, REST, FILE.subarray(CUT)),
    })
    assert.deepEqual(asked(server), ['whole', ASKS_FOR_REST, ASKS_FOR_REST])
    assert.ok(bytes.equals(FILE))
    assert.equal(answer.attempts, 3)
  })

  it('has another HMAC if the server continues with the bytes of another file', async t => {
    const { answer } = await fetchBroken(t, {
      next: (_, response) => send(response, 206, REST, OTHER.subarray(CUT)),
    })
    assert.ok(answer.ok)
    assert.notDeepEqual(answer.hmacSha256, createHmac('sha256', 'secret').update(FILE).digest())
  })

  for (const status of [403, 404, 410]) {
    it(`ends if the hub itself answers ${status} to a request for the rest`, async t => {
      const { answer, server } = await fetchBroken(t, { next: (_, response) => send(response, status) })
      assert.deepEqual([answer.status, answer.ok, asked(server).length], [status, false, 2])
    })

    it(`starts over at the hub if the redirect's target answers ${status}, and sends it no key`, async t => {
      const breaking = new Breaking()
      const storage = await serve(t, (request, response, nth) => {
        if (nth === 1) breaking.send(request, response, WHOLE, FILE.subarray(0, CUT), CUT)
        else if (nth === 2) send(response, status)
        else send(response, 200, WHOLE, OTHER)
      })
      const hub = await serve(t, (_, response, nth) => send(response, 302, { location: `${storage.url}/${nth}` }))
      const file = openPrivateFile(t)
      const request = { url: hub.url, credentials: { 'X-API-Key': 'key' }, fd: file.fd, ...LIMITS }
      const answer = await createTestedWire().download({ ...request, onProgress: breaking.onProgress })
      assert.equal(answer.ok, true)
      assert.ok(file.read().equals(OTHER))
      const expected = ['whole', ASKS_FOR_REST, 'whole']
      assert.deepEqual([asked(hub), asked(storage)], [expected, expected])
      assert.deepEqual(
        hub.requests.map(({ headers }) => headers['x-api-key']),
        ['key', 'key', 'key'],
      )
      for (const { headers } of storage.requests) assert.equal(headers['x-api-key'], undefined)
    })
  }

  it("starts over if the hub's redirect has another signature than before", async t => {
    const breaking = new Breaking()
    const storage = await serve(t, (request, response, nth) => {
      if (nth === 1) breaking.send(request, response, WHOLE, FILE.subarray(0, CUT), CUT)
      else if (request.headers.range) send(response, 206, REST, FILE.subarray(CUT))
      else send(response, 200, WHOLE, OTHER)
    })
    const hub = await serve(t, (_, response, nth) =>
      send(response, 302, { location: storage.url, 'x-signature': nth === 1 ? 'first' : 'second' }),
    )
    const file = openPrivateFile(t)
    const request = { url: hub.url, originHeaders: ['x-signature'], fd: file.fd, ...LIMITS }
    const answer = await createTestedWire().download({ ...request, onProgress: breaking.onProgress })
    assert.ok(file.read().equals(OTHER))
    assert.equal(answer.headers['x-signature'], 'second')
  })

  it('never exceeds the size limit, even if the rest is longer than it says', async t => {
    const file = openPrivateFile(t)
    const breaking = new Breaking()
    const server = await serve(t, (request, response, nth) => {
      if (nth === 1) breaking.send(request, response, WHOLE, FILE.subarray(0, CUT), CUT)
      else send(response, 206, { ...REST, 'content-length': undefined }, OTHER)
    })
    const request = { url: server.url, fd: file.fd, ...LIMITS, maxBytes: SIZE, onProgress: breaking.onProgress }
    await assert.rejects(createTestedWire().download(request), { code: 'archive_too_large' })
    assert.ok(file.read().length <= SIZE)
  })

  it('ends at once if it is cancelled while the rest arrives', async t => {
    const cancel = new AbortController()
    const reason = new Error('cancelled by the operator')
    const breaking = new Breaking()
    const server = await serve(t, (request, response, nth) => {
      if (nth === 1) breaking.send(request, response, WHOLE, FILE.subarray(0, CUT), CUT)
      else response.writeHead(206, REST).write(FILE.subarray(CUT, -1))
    })
    const onProgress = (received: number) => {
      breaking.onProgress(received)
      if (received === SIZE - 1) cancel.abort(reason)
    }
    const request = { url: server.url, fd: openPrivateFile(t).fd, ...LIMITS, onProgress }
    await assert.rejects(createTestedWire({ signal: cancel.signal }).download(request), reason)
    assert.deepEqual(asked(server), ['whole', ASKS_FOR_REST])
  })
})

interface Steps {
  readonly total: number
  readonly step: number
  readonly etag: (nth: number) => string
  /** Answers 412 to each request for the rest. */
  readonly refusesRest?: boolean
}

/** Serves a file of `total` bytes whose every answer breaks off once it has brought `step` more bytes. */
async function fetchInSteps(
  t: TestContext,
  { total, step, etag, refusesRest = false }: Steps,
  options: Partial<WireOptions> = {},
) {
  const file = openPrivateFile(t)
  let [breakAt, break_] = [0, () => {}]
  const server = await serve(t, (request, response, nth) => {
    const tag = etag(nth)
    const isRest = request.headers['if-range'] === tag
    const start = isRest ? Number(/\d+/.exec(request.headers.range ?? '')) : 0
    const range = { 'content-range': `bytes ${start}-${total - 1}/${total}` }
    if (isRest && refusesRest) return send(response, 412)
    breakAt = start + step
    break_ = () => request.socket.destroy()
    response.writeHead(isRest ? 206 : 200, { etag: tag, 'content-length': total - start, ...(isRest && range) })
    response.write(Buffer.alloc(Math.min(step, total - start)))
  })
  const onProgress = (received: number) => received >= breakAt && received < total && break_()
  const wire = createTestedWire(options)
  const call = wire.download({ url: server.url, fd: file.fd, ...LIMITS, maxBytes: total, onProgress })
  return { call, server, wire }
}

describe('the attempts of a download', () => {
  it('do not count if each leaves a MiB more to continue', async t => {
    const steps = 3 * (1 + MAX_RETRIES)
    const { call, server, wire } = await fetchInSteps(t, {
      total: steps * UNCOUNTED_BYTES,
      step: UNCOUNTED_BYTES,
      etag: () => '"file"',
    })
    const answer = await call
    assert.deepEqual([answer.ok, answer.attempts, server.connections()], [true, steps, steps])
    assert.match(wire.lines.at(-1) ?? '', new RegExp(`^Attempt ${steps - 1} of ${steps + MAX_RETRIES}: `))
    // The waits do not grow, because no attempt counts.
    assert.equal(new Set(wire.waits).size, 1)
  })

  const counted: [name: string, step: number, etag: (nth: number) => string][] = [
    ['less than that', UNCOUNTED_BYTES - 1, () => '"file"'],
    ['nothing, because there is no ETag', 2 * UNCOUNTED_BYTES, () => ''],
  ]
  for (const [name, step, etag] of counted) {
    it(`count if each leaves ${name}`, async t => {
      const { call, server } = await fetchInSteps(t, { total: 100 * UNCOUNTED_BYTES, step, etag })
      await assert.rejects(call, { code: 'network' })
      assert.equal(server.connections(), 1 + MAX_RETRIES)
    })
  }

  it('end with the time limit, even if none counts', async t => {
    const timers = createManualTimers()
    const options = { total: 100 * UNCOUNTED_BYTES, step: UNCOUNTED_BYTES, etag: () => '"file"' }
    const { call, server } = await fetchInSteps(t, options, {
      startTimer: timers.startTimer,
      sleep: async () => {
        if (server.connections() === 20) timers.expire(LIMITS.timeoutMs)
      },
    })
    await assert.rejects(call, { code: 'timeout' })
    assert.equal(server.connections(), 20)
  })

  const repeated: [name: string, how: Pick<Steps, 'etag' | 'refusesRest'>][] = [
    ['because the file always changes', { etag: nth => `"${nth}"` }],
    ['because the server refuses the rest', { etag: () => '"file"', refusesRest: true }],
  ]
  for (const [name, how] of repeated) {
    it(`count if they only repeat what an earlier one has brought, ${name}`, async t => {
      const { call, server } = await fetchInSteps(t, {
        total: 100 * UNCOUNTED_BYTES,
        step: 2 * UNCOUNTED_BYTES,
        ...how,
      })
      await assert.rejects(call, { code: 'network' })
      assert.equal(server.connections(), 2 + MAX_RETRIES)
    })
  }
})
