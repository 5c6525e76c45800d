import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { drip, serve, serveSocket } from './loopback-server.ts'
import { createManualTimers } from './manual-timers.ts'
import { openPrivateFile } from './private-file.ts'
import { createTestedWire, get } from './tested-wire.ts'

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
