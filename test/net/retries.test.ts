import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import { describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import { attemptsBefore, parseRetryAfter } from '../../src/net/retries.ts'
import { BACKOFF_BASE_MS, BACKOFF_CAP_MS, MAX_RETRIES, RETRY_AFTER_CAP_MS } from '../../src/net/settings.ts'
import { CLOSED_PORT, drip, serve, serveSocket } from './loopback-server.ts'
import { createManualTimers, createTestedWire, get, openPrivateFile } from './tested-wire.ts'

const POST = { method: 'POST', body: { a: 1 }, timeoutMs: 600_000 } as const

describe('withRetries', () => {
  for (const status of [408, 429, 500, 502, 503, 504, 599]) {
    it(`tries again after ${status} until it succeeds`, async t => {
      const server = await serve(t, (_, response, nth) => response.writeHead(nth < 3 ? status : 200).end('{}'))
      const wire = createTestedWire()
      const answer = await wire.requestJson({ ...get(server.url), retry: 'transient' })
      assert.deepEqual([answer.status, answer.attempts, wire.lines.length], [200, 3, 2])
    })
  }

  for (const status of [400, 401, 403, 404, 409, 410, 413, 422]) {
    it(`returns ${status} as the answer`, async t => {
      const server = await serve(t, (_, response) => response.writeHead(status).end('{"error":"no"}'))
      const answer = await createTestedWire().requestJson({ ...get(server.url), retry: 'transient' })
      assert.deepEqual([answer.status, answer.attempts, answer.body], [status, 1, { error: 'no' }])
    })
  }

  it('returns the last answer after four attempts', async t => {
    const server = await serve(t, (_, response, nth) => response.writeHead(503).end(`{"error":"${nth}"}`))
    const answer = await createTestedWire().requestJson({ ...get(server.url), retry: 'transient' })
    assert.deepEqual([answer.status, answer.attempts, answer.body], [503, 1 + MAX_RETRIES, { error: '4' }])
  })

  it('sends the whole body of a POST again', async t => {
    const bodies: string[] = []
    const server = await serve(t, (request, response, nth) => {
      request.setEncoding('utf8').on('data', text => bodies.push(text))
      request.on('end', () => response.writeHead(nth === 1 ? 502 : 201).end('{}'))
    })
    const answer = await createTestedWire().requestJson({ ...POST, url: server.url, retry: 'transient' })
    assert.deepEqual([answer.status, bodies], [201, ['{"a":1}', '{"a":1}']])
  })

  it('waits exponentially with jitter', async t => {
    const server = await serve(t, (_, response) => response.writeHead(500).end())
    const wire = createTestedWire({ random: () => 0.5 })
    await wire.requestJson({ ...get(server.url), retry: 'transient' })
    const [base, cap] = [BACKOFF_BASE_MS, BACKOFF_CAP_MS]
    assert.deepEqual(wire.waits, [base / 2, base, Math.min(base * 2, cap / 2)])
  })

  it('waits as long as Retry-After asks', async t => {
    const server = await serve(t, (_, response, nth) =>
      response.writeHead(nth === 1 ? 429 : 200, { 'Retry-After': '7' }).end(),
    )
    const wire = createTestedWire()
    await wire.requestJson({ ...get(server.url), retry: 'transient' })
    assert.deepEqual(wire.waits, [7000])
  })

  for (const hours of [1, -1]) {
    it(`waits until the date in Retry-After, even if the host's clock is ${hours} h off`, async t => {
      const at = Date.parse('2026-03-01T12:00:00Z')
      const dates = { Date: new Date(at).toUTCString(), 'Retry-After': new Date(at + 10_000).toUTCString() }
      const server = await serve(t, (_, response, nth) => response.writeHead(nth === 1 ? 503 : 200, dates).end())
      t.mock.timers.enable({ apis: ['Date'], now: at + hours * 3_600_000 })
      const wire = createTestedWire()
      await wire.requestJson({ ...get(server.url), retry: 'transient' })
      assert.deepEqual(wire.waits, [10_000])
    })
  }

  it('does not start a wait that would reach the deadline', async t => {
    const server = await serve(t, (_, response) => response.writeHead(503, { 'Retry-After': '25' }).end('{}'))
    const wire = createTestedWire()
    const answer = await wire.requestJson({ ...get(server.url), retry: 'transient', timeoutMs: 20_000 })
    assert.deepEqual([answer.status, answer.attempts, wire.waits], [503, 1, []])
  })

  it('makes no more attempts once it is cancelled', async t => {
    const cancel = new AbortController()
    const reason = new Error('cancelled by the operator')
    const server = await serve(t, (_, response) => response.writeHead(503).end())
    const sleep = async () => cancel.abort(reason)
    const wire = createTestedWire({ signal: cancel.signal, sleep })
    await assert.rejects(wire.requestJson({ ...get(server.url), retry: 'transient' }), reason)
    assert.equal(server.connections(), 1)
  })

  for (const [name, code, end] of [
    ['the hub does not answer in time', 'timeout', (_, expire) => expire()],
    ['the answer is not HTTP', 'bad_response', socket => socket.end('SSH-2.0\r\n')],
  ] as [string, string, (socket: Socket, expire: () => void) => void][])
    it(`counts the attempts before a failure if, at last, ${name}`, async t => {
      const timers = createManualTimers()
      const server = await serveSocket(t, (socket, nth) =>
        socket.once('data', () => (nth < 3 ? socket.destroy() : end(socket, () => timers.expire(600_000)))),
      )
      const wire = createTestedWire({ startTimer: timers.startTimer })
      const error = await wire.requestJson({ ...get(server.url), retry: 'transient' }).catch(error => error)
      assert.deepEqual([error.code, attemptsBefore(error)], [code, 3])
    })

  it('tries again after a reset and follows the redirects from the start', async t => {
    const paths: (string | undefined)[] = []
    const server = await serve(t, (request, response, nth) => {
      paths.push(request.url)
      if (request.url === '/') response.writeHead(302, { Location: `/signed-${nth}` }).end()
      else if (nth === 2) request.socket.resetAndDestroy()
      else response.end('{}')
    })
    const answer = await createTestedWire().requestJson({ ...get(`${server.url}/`), retry: 'transient' })
    assert.deepEqual([answer.attempts, paths], [2, ['/', '/signed-1', '/', '/signed-3']])
  })

  it('never retries when the caller forbids it', async t => {
    const server = await serve(t, (_, response) => response.writeHead(503).end())
    const answer = await createTestedWire().requestJson({ ...get(server.url), retry: 'never' })
    assert.equal(answer.attempts, 1)
  })
})

describe('a connection-only retry', () => {
  it('tries again when no server listens', async () => {
    const wire = createTestedWire()
    const call = wire.requestJson({ ...POST, url: `http://127.0.0.1:${CLOSED_PORT}`, retry: 'connection-only' })
    await assert.rejects(call, { name: 'ArtifactError', code: 'network' })
    assert.equal(wire.waits.length, MAX_RETRIES)
  })

  it('tries again when the name is unknown', async () => {
    const wire = createTestedWire({ allowHttp: true })
    const call = wire.requestJson({ ...POST, url: `http://${UNRESOLVABLE}`, retry: 'connection-only' })
    await assert.rejects(call, { code: 'network' })
    assert.equal(wire.waits.length, MAX_RETRIES)
  })

  it('never repeats a request that a server may have processed', async t => {
    const server = await serveSocket(t, socket => socket.once('data', () => socket.resetAndDestroy()))
    const call = createTestedWire().requestJson({ ...POST, url: server.url, retry: 'connection-only' })
    await assert.rejects(call, { code: 'network' })
    assert.equal(server.connections(), 1)
  })

  it('returns 503 as the answer', async t => {
    const server = await serve(t, (_, response) => response.writeHead(503).end())
    const answer = await createTestedWire().requestJson({ ...POST, url: server.url, retry: 'connection-only' })
    assert.deepEqual([answer.status, answer.attempts], [503, 1])
  })
})

// A label longer than DNS allows, which the resolver refuses without a query.
const UNRESOLVABLE = `${'a'.repeat(64)}.test`

describe('parseRetryAfter', () => {
  const date = 'Sun, 01 Mar 2026 12:00:00 GMT'
  const table: [header: string, ms: number][] = [
    ['', 0],
    ['5', 5000],
    [' 5 ', 5000],
    ['0', 0],
    ['-5', 0],
    ['1.5', 0],
    ['999999999999999999999', RETRY_AFTER_CAP_MS],
    ['Sun, 01 Mar 2026 12:00:10 GMT', 10_000],
    ['Sun, 01 Mar 2026 11:00:00 GMT', 0],
    ['Mon, 01 Mar 2100 00:00:00 GMT', RETRY_AFTER_CAP_MS],
    ['Sun, 99 Foo 2026 12:00:10 GMT', 0],
    ['soon, 2099', 0],
  ]
  for (const [header, ms] of table)
    it(`reads ${header} as ${ms} ms`, () => assert.equal(parseRetryAfter({ 'retry-after': header, date }), ms))

  it('reads an answer without the header as 0 ms', () => assert.equal(parseRetryAfter({ date }), 0))

  for (const unusable of [undefined, 'yesterday'])
    it(`does not compare a date with the clock of this host when the answer's own date is ${unusable}`, t => {
      t.mock.timers.enable({ apis: ['Date'], now: Date.parse(date) })
      const headers = { 'retry-after': 'Sun, 01 Mar 2026 12:00:10 GMT' }
      assert.equal(parseRetryAfter(unusable === undefined ? headers : { ...headers, date: unusable }), 0)
    })

  it('stays between 0 and the cap for any text', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.integer().map(String),
          fc.date({ noInvalidDate: true }).map(date => date.toUTCString()),
        ),
        text => {
          const ms = parseRetryAfter({ 'retry-after': text, date })
          return ms >= 0 && ms <= RETRY_AFTER_CAP_MS
        },
      ),
    )
  })
})

const LIMIT_MS = 600_000
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n'

describe('the overall deadline', () => {
  it('ends a body that drips forever', async t => {
    const timers = createManualTimers()
    const server = await serveSocket(t, socket => drip(socket, HEAD, 1))
    const onProgress = (received: number) => {
      if (timers.running().includes(LIMIT_MS) && received >= 3) timers.expire(LIMIT_MS)
    }
    const request = { url: server.url, fd: openPrivateFile(t).fd, maxBytes: 1000, timeoutMs: LIMIT_MS, onProgress }
    const call = createTestedWire({ startTimer: timers.startTimer }).download(request)
    await assert.rejects(call, {
      name: 'ArtifactError',
      code: 'timeout',
      message: /600 s in all: .*, or raise timeout-minutes\.$/,
    })
    assert.equal(server.connections(), 1)
  })

  it('ends a head that drips forever', async t => {
    const server = await serveSocket(t, socket => drip(socket, 'HTTP/1.1 200 OK\r\nX-Slow: ', 20))
    const call = createTestedWire().requestJson({ ...get(server.url), timeoutMs: 234.5 })
    await assert.rejects(call, { code: 'timeout', message: /0\.2 s in all: check the server and the network\.$/ })
  })

  it('includes the waits between attempts', async t => {
    const timers = createManualTimers()
    const server = await serve(t, (_, response) => response.writeHead(503).end())
    const sleep = async () => timers.expire(LIMIT_MS)
    const wire = createTestedWire({ sleep, startTimer: timers.startTimer })
    const call = wire.requestJson({ ...get(server.url), retry: 'transient', timeoutMs: LIMIT_MS })
    await assert.rejects(call, { code: 'timeout' })
    assert.equal(server.requests.length, 1)
  })

  it('is stopped when the answer is complete', async t => {
    const timers = createManualTimers()
    const server = await serve(t, (_, response) => response.end('{}'))
    await createTestedWire({ startTimer: timers.startTimer }).requestJson(get(server.url))
    assert.deepEqual(timers.running(), [])
  })
})

describe('cancelling', () => {
  const reason = new Error('cancelled by the operator')

  it('ends a wait between attempts', async t => {
    const cancel = new AbortController()
    const server = await serve(t, (_, response) => response.writeHead(503).end())
    const sleep = (_: number, signal?: AbortSignal) =>
      setTimeout(60_000, undefined, signal === undefined ? {} : { signal })
    const wire = createTestedWire({ signal: cancel.signal, sleep, log: () => setImmediate(() => cancel.abort(reason)) })
    await assert.rejects(wire.requestJson({ ...get(server.url), retry: 'transient', timeoutMs: 600_000 }), reason)
  })

  it('refuses to start when it is already cancelled', async t => {
    const server = await serve(t, (_, response) => response.end())
    await assert.rejects(createTestedWire({ signal: AbortSignal.abort(reason) }).requestJson(get(server.url)), reason)
    assert.equal(server.connections(), 0)
  })

  for (const [when, head] of [
    ['before the head', ''],
    ['in the body', HEAD],
  ] as const) {
    it(`ends an attempt ${when} with the signal's reason, without a retry`, async t => {
      const cancel = new AbortController()
      const server = await serveSocket(t, socket => {
        socket.write(head)
        socket.once('data', () => setImmediate(() => cancel.abort(reason)))
      })
      const call = createTestedWire({ signal: cancel.signal }).requestJson({ ...get(server.url), retry: 'transient' })
      await assert.rejects(call, reason)
      assert.equal(server.connections(), 1)
    })
  }
})
