import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { openExchange } from '../../src/net/exchange.ts'
import { readSettings } from '../../src/net/settings.ts'
import { startConnectProxy, useProxyEnvironment } from './connect-proxy.ts'
import { drip, serve, serveSocket } from './loopback-server.ts'
import { createTestedWire, get } from './tested-wire.ts'

const LONG_MS = 60_000
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n'

describe('the connect time-out', () => {
  const timeouts = { connectMs: 100, idleMs: LONG_MS }

  it('ends a TLS handshake that stalls, and counts as not sent', async t => {
    const server = await serveSocket(t, () => {})
    const wire = createTestedWire({ timeouts })
    const call = wire.requestJson({ ...get(server.url.replace('http:', 'https:')), retry: 'connection-only' })
    await assert.rejects(call, {
      name: 'ArtifactError',
      code: 'timeout',
      sent: false,
      message: /connected to within 0\.1 s/,
    })
    assert.equal(server.connections(), 4)
  })

  it('ends a talk with a proxy that stalls', async t => {
    const proxy = await startConnectProxy(t, 'stalled')
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const call = createTestedWire({ timeouts, allowHttp: true }).requestJson(get('http://hub.test'))
    await assert.rejects(call, { code: 'timeout', sent: false })
    assert.deepEqual(proxy.targets, ['hub.test:80'])
  })

  it('is over once the connection stands', async t => {
    const server = await serve(t, async (_, response) => {
      await setTimeout(300)
      response.end('{}')
    })
    assert.equal((await createTestedWire({ timeouts }).requestJson(get(server.url))).status, 200)
  })
})

describe('the idle time-out', () => {
  const timeouts = { connectMs: LONG_MS, idleMs: 100 }
  const silences: [name: string, said: string][] = [
    ['nothing', ''],
    ['half a head', 'HTTP/1.1 200 OK\r\nContent-'],
    ['a head and no body', HEAD],
    ['half a body', `${HEAD}{"a":`],
  ]
  for (const [name, said] of silences) {
    it(`ends a wait for a server that sends ${name}`, async t => {
      const server = await serveSocket(t, socket => socket.write(said))
      const call = createTestedWire({ timeouts }).requestJson(get(server.url))
      await assert.rejects(call, { name: 'ArtifactError', code: 'timeout', sent: true, message: /nothing for 0\.1 s/ })
    })
  }

  it('is transient', async t => {
    const server = await serveSocket(t, (socket, nth) =>
      socket.write(nth === 1 ? HEAD : 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'),
    )
    const answer = await createTestedWire({ timeouts }).requestJson({ ...get(server.url), retry: 'transient' })
    assert.equal(answer.attempts, 2)
  })

  it('does not count the time that we take', async t => {
    const size = 32 * 1024 * 1024
    const server = await serve(t, (_, response) => response.end(Buffer.alloc(size)))
    const settings = readSettings({ allowHttp: false, userAgent: 'test', log: () => {}, timeouts })
    const request = { method: 'GET', url: new URL(server.url), headers: {}, body: undefined } as const
    const exchange = await openExchange(request, settings, new AbortController().signal)
    let received = 0
    for await (const chunk of exchange.body) {
      if (received === 0) await setTimeout(300)
      received += chunk.length
    }
    exchange.close()
    assert.equal(received, size)
  })

  it('begins anew with every byte', async t => {
    const server = await serveSocket(t, socket => drip(socket, 'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n', 50))
    const wire = createTestedWire({ timeouts: { connectMs: LONG_MS, idleMs: 2000 } })
    assert.equal((await wire.requestJson(get(server.url))).text, 'xxxxxxxx')
  })
})
