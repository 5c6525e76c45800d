import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { drip, serve, serveSocket } from './loopback-server.ts'
import { createTestedWire, get } from './tested-wire.ts'

const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n'

describe('the overall deadline', () => {
  it('ends a body that drips for ever', async t => {
    const server = await serveSocket(t, socket => drip(socket, HEAD, 20))
    const call = createTestedWire().requestJson({ ...get(server.url), retry: 'transient', timeoutMs: 200 })
    await assert.rejects(call, { name: 'ArtifactError', code: 'timeout', message: /0\.2 s in all/ })
    assert.equal(server.connections(), 1)
  })

  it('ends a head that drips for ever', async t => {
    const server = await serveSocket(t, socket => drip(socket, 'HTTP/1.1 200 OK\r\nX-Slow: ', 20))
    const call = createTestedWire().requestJson({ ...get(server.url), timeoutMs: 200 })
    await assert.rejects(call, { code: 'timeout', message: /in all/ })
  })

  it('includes the waits between attempts', async t => {
    const server = await serve(t, (_, response) => response.writeHead(503).end())
    const wire = createTestedWire({
      sleep: (_, signal) => new Promise(resolve => signal?.addEventListener('abort', () => resolve())),
    })
    await assert.rejects(wire.requestJson({ ...get(server.url), retry: 'transient', timeoutMs: 1000 }), {
      code: 'timeout',
    })
    assert.equal(server.requests.length, 1)
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

  it('refuses to begin when it is cancelled already', async t => {
    const server = await serve(t, (_, response) => response.end())
    await assert.rejects(createTestedWire({ signal: AbortSignal.abort(reason) }).requestJson(get(server.url)), reason)
    assert.equal(server.connections(), 0)
  })

  for (const [when, head] of [
    ['before the head', ''],
    ['in the body', HEAD],
  ] as const) {
    it(`ends what is under way ${when} with the signal's reason, unretried`, async t => {
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
