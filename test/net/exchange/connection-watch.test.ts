import assert from 'node:assert/strict'
import { once } from 'node:events'
import http from 'node:http'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { ConnectionWatch } from '../../../src/net/exchange/connection-watch.ts'
import { openExchange } from '../../../src/net/exchange/exchange.ts'
import { readSettings } from '../../../src/net/settings.ts'
import { startConnectProxy, useProxyEnvironment } from '../connect-proxy.ts'
import { serve, serveSocket } from '../loopback-server.ts'
import { createManualTimers, type ManualTimers } from '../manual-timers.ts'
import { createTestedWire, get } from '../tested-wire.ts'

const CONNECT_MS = 100
const IDLE_MS = 200
const timeouts = { connectMs: CONNECT_MS, idleMs: IDLE_MS }
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n'

function openWith(timers: ManualTimers, url: string) {
  const settings = readSettings({
    allowHttp: false,
    userAgent: 'test',
    log: () => {},
    timeouts,
    startTimer: timers.startTimer,
  })
  const hub = new URL(url)
  return openExchange({ method: 'GET', url: hub, headers: {}, body: undefined, hub, server: hub.origin }, settings)
}

describe('the connect timeout', () => {
  it('ends a TLS handshake that stalls, and counts the request as not sent', async t => {
    const timers = createManualTimers()
    const server = await serveSocket(t, socket => socket.once('data', () => timers.expire(CONNECT_MS)))
    const wire = createTestedWire({ timeouts, startTimer: timers.startTimer })
    const call = wire.requestJson({ ...get(server.url.replace('http:', 'https:')), retry: 'connection-only' })
    await assert.rejects(call, {
      name: 'ArtifactError',
      code: 'timeout',
      sent: false,
      message: /connect to .* within 0\.1 s/,
    })
    assert.equal(server.connections(), 4)
    assert.deepEqual(timers.running(), [])
  })

  it('ends an exchange with a proxy that stalls', async t => {
    const timers = createManualTimers()
    const proxy = await startConnectProxy(t, () => timers.expire(CONNECT_MS))
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const wire = createTestedWire({ timeouts, startTimer: timers.startTimer, allowHttp: true })
    await assert.rejects(wire.requestJson(get('http://hub.test')), { code: 'timeout', sent: false })
    assert.deepEqual(proxy.targets, ['hub.test:80'])
  })

  it('ends once the connection is ready', async t => {
    const timers = createManualTimers()
    let running: number[] = []
    const server = await serve(t, (_, response) => {
      running = timers.running()
      response.end('{}')
    })
    const exchange = await openWith(timers, server.url)
    exchange.close()
    assert.deepEqual(running, [IDLE_MS])
  })
})

describe('the idle timeout', () => {
  const silences: [name: string, sent: string][] = [
    ['nothing', ''],
    ['half a head', 'HTTP/1.1 200 OK\r\nContent-'],
    ['a head and no body', HEAD],
    ['half a body', `${HEAD}{"a":`],
  ]
  for (const [name, sent] of silences) {
    it(`ends a wait for a server that sends ${name}`, async t => {
      const server = await serveSocket(t, socket => socket.write(sent))
      const call = createTestedWire({ timeouts: { idleMs: IDLE_MS } }).requestJson(get(server.url))
      await assert.rejects(call, { name: 'ArtifactError', code: 'timeout', sent: true, message: /nothing for 0\.2 s/ })
    })
  }

  it('ends a wait for a server that sends only interim answers', async t => {
    const server = await serveSocket(t, socket => {
      const timer = setInterval(() => socket.write('HTTP/1.1 100 Continue\r\n\r\n'), 20)
      socket.on('close', () => clearInterval(timer))
    })
    const call = createTestedWire({ timeouts: { idleMs: IDLE_MS } }).requestJson(get(server.url))
    await assert.rejects(call, { name: 'ArtifactError', code: 'timeout', sent: true })
  })

  it('is a transient failure', async t => {
    const timers = createManualTimers()
    const server = await serve(t, (_, response, nth) => (nth === 1 ? timers.expire(IDLE_MS) : response.end('{}')))
    const wire = createTestedWire({ timeouts, startTimer: timers.startTimer })
    const answer = await wire.requestJson({ ...get(server.url), retry: 'transient' })
    assert.deepEqual([answer.status, answer.attempts], [200, 2])
  })

  it('restarts with every chunk, and does not count our own processing time', async t => {
    const timers = createManualTimers()
    let send: () => unknown = () => {}
    const server = await serve(t, (_, response) => {
      response.writeHead(200, { 'Content-Length': 3 }).flushHeaders()
      send = () => response.write('x')
    })
    const exchange = await openWith(timers, server.url)
    let received = 0
    send()
    for await (const chunk of exchange.body) {
      received += chunk.length
      assert.deepEqual(timers.running(), [])
      if (received < 3) send()
    }
    exchange.close()
    const [whenReady, ...whileWaiting] = timers.started.slice(1)
    assert.deepEqual([whenReady, whileWaiting], [IDLE_MS, [IDLE_MS, IDLE_MS, IDLE_MS, IDLE_MS]])
    assert.deepEqual(timers.running(), [])
  })
})

describe('close', () => {
  it('creates no stack trace, because V8 would then count the lines of the whole bundle', async t => {
    const server = await serve(t, (_, response) => response.end('{}'))
    const exchange = await openWith(createManualTimers(), server.url)
    for await (const _ of exchange.body);
    const traced: string[] = []
    const { prepareStackTrace } = Error
    t.after(() => {
      Error.prepareStackTrace = prepareStackTrace
    })
    Error.prepareStackTrace = error => String(traced.push(error.message))
    exchange.close()
    await setImmediate()
    assert.deepEqual(traced, [])
  })

  it('releases what listens to the signal, once the request is closed', async t => {
    const server = await serve(t, (_, response) => response.end('{}'))
    const settings = readSettings({ allowHttp: false, userAgent: 'test', log: () => {}, timeouts })
    const watch = new ConnectionWatch({ server: server.url, foreign: false }, settings)
    const request = http.get(server.url, { signal: watch.signal })
    watch.follow(request)
    const [answer] = await once(request, 'response')
    watch.close()
    assert.equal(watch.signal.aborted, false)
    await once(answer, 'close')
    await setImmediate()
    assert.equal(watch.signal.aborted, true)
  })

  it('ends the connection although part of the body is still to come', async t => {
    const timers = createManualTimers()
    const ended = Promise.withResolvers<void>()
    const server = await serveSocket(t, socket => socket.resume().on('close', ended.resolve).write(`${HEAD}x`))
    const exchange = await openWith(timers, server.url)
    exchange.close()
    await ended.promise
    assert.deepEqual(timers.running(), [])
  })
})
