import assert from 'node:assert/strict'
import { once } from 'node:events'
import http from 'node:http'
import { Agent, request } from 'node:https'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { parseSignatureHeader } from '../../src/core/trust/signature.ts'
import { ConnectionWatch, explainFailure, openExchange, readRequestHeaders } from '../../src/net/exchange.ts'
import { buildWireSettings } from '../../src/net/settings.ts'
import {
  CLOSED_PORT,
  makeCertificate,
  serve,
  serveSocket,
  serveTls,
  startConnectProxy,
  useProxyEnvironment,
} from './loopback-server.ts'
import { createManualTimers, createTestedWire, get, type ManualTimers, openPrivateFile } from './tested-wire.ts'

const QUERY = '/blob?X-Amz-Signature=s3cret'

describe('a failing connection', () => {
  it('is reported with the host and the cause, without the query', async () => {
    await assert.rejects(
      createTestedWire().requestJson(get(`http://127.0.0.1:${CLOSED_PORT}${QUERY}`)),
      (error: Error & { code: string }) => {
        assert.equal(error.code, 'network')
        assert.match(error.message, new RegExp(`127\\.0\\.0\\.1:${CLOSED_PORT}.*ECONNREFUSED`))
        assert.doesNotMatch(error.message, /s3cret/)
        return true
      },
    )
  })

  it('is reported with the cause when localhost has several addresses', async () => {
    const call = createTestedWire().requestJson(get(`http://localhost:${CLOSED_PORT}`))
    await assert.rejects(call, { code: 'network', message: /ECONNREFUSED/ })
  })

  it('is reported as network when the server of an https URL does not speak TLS', async t => {
    const server = await serveSocket(t, socket => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))
    await assert.rejects(createTestedWire().requestJson(get(server.url.replace('http:', 'https:'))), {
      code: 'network',
      message: /http instead of https/,
    })
  })

  it('is reported as bad_response when the server of an http URL speaks TLS', async t => {
    const alert = Buffer.from([0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46])
    const server = await serveSocket(t, socket => socket.once('data', () => socket.end(alert)))
    await assert.rejects(createTestedWire().requestJson(get(server.url)), {
      code: 'bad_response',
      message: /https instead of http/,
    })
  })

  const certificate = makeCertificate()
  it('names https when the server of an http URL expects TLS and closes the connection', {
    skip: certificate === undefined && 'openssl is not installed',
  }, async t => {
    const own = { key: certificate?.key ?? '', cert: certificate?.cert ?? '' }
    const { url } = await serveTls(t, own, (_, response) => response.end('{}'))
    await assert.rejects(createTestedWire().requestJson(get(url.replace('https:', 'http:'))), {
      code: 'network',
      message: /: check the URL, .* If this port expects https, the URL must begin with https instead of http\.$/,
    })
  })

  for (const said of [
    '<title>400 The plain HTTP request was sent to HTTPS port</title>',
    'Client sent an HTTP request to an HTTPS server.\n',
    "Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />",
    'Bad Request\nThis combination of host and port requires TLS.\n',
  ]) {
    it(`is reported as bad_response when the server of an http URL answers ${said}`, async t => {
      const server = await serve(t, (_, response) => response.writeHead(400).end(said))
      await assert.rejects(createTestedWire().requestJson(get(server.url)), {
        code: 'bad_response',
        message: `${server.url} expects https on this port: the URL must begin with https instead of http.`,
      })
    })
  }

  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    it(`does not blame the server's certificate when a ${version} server requires a client certificate`, {
      skip: certificate === undefined && 'openssl is not installed',
    }, async t => {
      const own = { key: certificate?.key ?? '', cert: certificate?.cert ?? '' }
      const options = { ...own, ca: own.cert, requestCert: true, maxVersion: version }
      const server = await serveTls(t, options, (_, response) => response.end('{}'))
      const call = createTestedWire({ ca: own.cert }).requestJson(get(server.url))
      await assert.rejects(call, { code: 'network', message: /^(?!The certificate of)/ })
    })
  }

  const broken: [name: string, sent: string, code: string][] = [
    ['closes without an answer', '', 'network'],
    ['closes in the head', 'HTTP/1.1 200 OK\r\nContent-', 'network'],
    ['sends a body shorter than its Content-Length', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}', 'network'],
    ['ends in the middle of the chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n', 'network'],
    ['does not speak HTTP', 'SSH-2.0-OpenSSH_9.9\r\n', 'bad_response'],
    ['sends an endless head', `HTTP/1.1 200 OK\r\n${'X-Long: x\r\n'.repeat(20_000)}`, 'bad_response'],
    ['sends two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}', 'bad_response'],
  ]
  for (const [name, sent, code] of broken) {
    it(`is reported as ${code} when the server ${name}`, async t => {
      const server = await serveSocket(t, socket => socket.once('data', () => socket.end(sent)))
      await assert.rejects(createTestedWire().requestJson(get(server.url)), { name: 'ArtifactError', code })
    })
  }
})

describe('an answer with HTTP 101', () => {
  const answers: [name: string, head: string][] = [
    ['that upgrades', 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'],
    ['that names no protocol', 'HTTP/1.1 101 Switching Protocols\r\n\r\n'],
  ]
  for (const [name, head] of answers) {
    it(`${name} fails a request with bad_response, without a retry`, async t => {
      const server = await serveSocket(t, socket => socket.once('data', () => socket.write(head)))
      for (const retry of ['transient', 'connection-only', 'never'] as const) {
        const call = createTestedWire().requestJson({ ...get(server.url), method: 'POST', body: {}, retry })
        await assert.rejects(call, { name: 'ArtifactError', code: 'bad_response', message: /HTTP 101/ })
      }
      assert.equal(server.connections(), 3)
    })

    it(`${name} fails a download with bad_response`, async t => {
      const server = await serveSocket(t, socket => socket.once('data', () => socket.write(head)))
      const request = { url: server.url, fd: openPrivateFile(t).fd, maxBytes: 100, timeoutMs: 600_000 }
      const call = createTestedWire().download(request)
      await assert.rejects(call, { name: 'ArtifactError', code: 'bad_response', message: /HTTP 101/ })
    })
  }

  it('fails a request through a proxy with bad_response', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serveSocket(t, socket => socket.once('data', () => socket.write(answers[0]?.[1] ?? '')))
    const call = createTestedWire({ allowHttp: true }).requestJson(get(`http://hub.test:${server.port}/`))
    await assert.rejects(call, { name: 'ArtifactError', code: 'bad_response' })
  })
})

describe('explainFailure', () => {
  it('does not blame TLS when a connection breaks after its TLS handshake', () => {
    const broken = Object.assign(new Error('write EPROTO'), { code: 'EPROTO' })
    assert.doesNotMatch(
      explainFailure(broken, { server: 'https://hub.test', foreign: false, sent: true }).message,
      /TLS/,
    )
  })

  it('cleans the message of the system error', () => {
    const error = explainFailure(new Error('bad\n::error::name'), {
      server: 'https://hub.test',
      foreign: false,
      sent: false,
    })
    assert.match(error.message, /\(bad ::error::name\)/)
  })

  it("quotes the status of the operator's proxy, but nothing else, if the proxy refuses another server", async t => {
    const proxy = await startConnectProxy(t, 'refuses')
    const agent = new Agent({ proxyEnv: { https_proxy: proxy.url } })
    const [refused] = await once(request('https://files.test/secret', { agent }).end(), 'error')
    const { message } = explainFailure(refused, { server: 'https://files.test', foreign: true, sent: false })
    const reason = 'ERR_PROXY_TUNNEL: the proxy answered HTTP 403'
    assert.equal(
      message,
      `Could not connect to https://files.test (${reason}): check the URL, the network and any proxy.`,
    )
  })

  it("names the input for trusting a certificate, not an option of Node's command line", () => {
    const hint =
      'self-signed certificate; if the root CA is installed locally, try running Node.js with --use-system-ca'
    const refused = Object.assign(new Error(hint), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' })
    const error = explainFailure(refused, { server: 'https://hub.test', foreign: false, sent: false })
    assert.match(error.message, /was refused \(self-signed certificate\), and nothing was sent/)
    assert.equal(error.next, 'Set `ca-file`')
  })

  it('says that a server sent too many headers, not that its port is wrong', async t => {
    const server = await serve(t, (_, response) => response.writeHead(200, { 'x-long': 'x'.repeat(20_000) }).end('{}'))
    const call = createTestedWire().requestJson(get(server.url))
    await assert.rejects(call, {
      name: 'ArtifactError',
      code: 'bad_response',
      message: /sent more than 16 KiB of headers/,
    })
  })

  const certificate = makeCertificate()
  const skip = certificate === undefined ? 'openssl is not installed' : false
  it('says that a server speaks only an old version of TLS, not that its URL should be http', { skip }, async t => {
    const old = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const
    const server = await serveTls(t, { ...certificate, ...old }, (_, response) => response.end('{}'))
    const call = createTestedWire({ ca: certificate?.cert ?? '' }).requestJson(get(server.url))
    await assert.rejects(call, { name: 'ArtifactError', code: 'network', message: /only a version of TLS before 1\.2/ })
  })

  const ISSUER = /^UNABLE|SELF_SIGNED|UNTRUSTED/
  const codes = [
    ...['UNABLE_TO_GET_ISSUER_CERT', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'CERT_UNTRUSTED'],
    ...['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID', 'CERT_REVOKED', 'ERR_TLS_CERT_ALTNAME_INVALID'],
  ]
  for (const code of codes) {
    const isIssuer = ISSUER.test(code)
    it(`${isIssuer ? 'advises' : 'does not advise'} ca-file for ${code}`, () => {
      const refused = Object.assign(new Error('refused'), { code })
      const { message, next } = explainFailure(refused, { server: 'https://hub.test', foreign: false, sent: false })
      assert.equal(next, isIssuer ? 'Set `ca-file`' : undefined)
      assert.match(message, isIssuer ? /add that authority to ca-file\.$/ : /this host's clock/)
      assert.equal(message.includes('ca-file'), isIssuer)
    })
  }
})

const CONNECT_MS = 100
const IDLE_MS = 200
const timeouts = { connectMs: CONNECT_MS, idleMs: IDLE_MS }
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n'

function openWith(timers: ManualTimers, url: string) {
  const settings = buildWireSettings({
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
    const settings = buildWireSettings({ allowHttp: false, userAgent: 'test', log: () => {}, timeouts })
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

describe('readRequestHeaders', () => {
  it('converts names to lower case', () =>
    assert.deepEqual(readRequestHeaders({ 'X-API-Key': 'k' }), { 'x-api-key': 'k' }))

  const refused: [name: string, headers: Record<string, string>][] = [
    ['a line break in a value', { 'X-API-Key': 's3cret\n' }],
    ['a header smuggled in after a value', { 'X-API-Key': 's3cret\r\nX-Admin: 1' }],
    ['a NUL in a value', { 'X-API-Key': 's3cret\0' }],
    ['a character beyond Latin-1', { 'X-API-Key': 's3cret\u{1f511}' }],
    ['a line break in a name', { 'X-API\nKey': 's3cret' }],
  ]
  for (const [name, headers] of refused) {
    it(`refuses ${name} without quoting the value`, () => {
      assert.throws(
        () => readRequestHeaders(headers),
        (error: Error & { code: string }) => error.code === 'invalid_input' && !error.message.includes('s3cret'),
      )
    })
  }

  it('checks headers before anything is sent', async t => {
    const server = await serve(t, (_, response) => response.end())
    const request = { ...get(server.url), credentials: { 'X-API-Key': 'a\r\nb: c' } }
    await assert.rejects(createTestedWire().requestJson(request), { name: 'ConfigError', code: 'invalid_input' })
    assert.equal(server.connections(), 0)
  })
})

describe('readResponseHeaders', () => {
  it('returns lower-case names and joins repeated headers', async t => {
    const server = await serve(t, (_, response) => {
      response.setHeader('X-Repo', 'owner/repo@v1')
      response.setHeader('Set-Cookie', ['a=1', 'b=2'])
      response.end('{}')
    })
    const { headers } = await createTestedWire().requestJson(get(server.url))
    assert.equal(headers['x-repo'], 'owner/repo@v1')
    assert.equal(headers['set-cookie'], 'a=1, b=2')
  })

  it('accepts neither signature of an answer that has two', async t => {
    const one = `hmac_sha256:${'a'.repeat(64)}`
    const two = `hmac_sha256:${'b'.repeat(64)}`
    const server = await serveSocket(t, socket =>
      socket.end(`HTTP/1.1 200 OK\r\nX-Signature: ${one}\r\nX-Signature: ${two}\r\nContent-Length: 2\r\n\r\n{}`),
    )
    const { headers } = await createTestedWire().requestJson(get(server.url))
    assert.throws(() => parseSignatureHeader(headers['x-signature']), { code: 'invalid_signature_format' })
  })
})
