import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { describe, it } from 'node:test'
import { DeployError } from '../../src/core/errors.ts'
import {
  CLOSED_PORT,
  makeCertificate,
  serve,
  serveSocket,
  serveTls,
  startConnectProxy,
  useProxyEnvironment,
} from './loopback-server.ts'
import { createTestedWire, get } from './tested-wire.ts'

const SECRETS = {
  credentials: { 'X-API-Key': 'key' },
  headers: { Authorization: 'Bearer t', Cookie: 'c=1', 'X-Kept': 'yes' },
}

function redirect(response: ServerResponse, location: string, status = 302): void {
  response.writeHead(status, { Location: location }).end('moved')
}

describe('followRedirects', () => {
  const certificate = makeCertificate()
  for (const status of [301, 302, 303, 307, 308]) {
    it(`follows ${status} to a relative Location`, async t => {
      const server = await serve(t, (request, response) => {
        if (request.url === '/a/b?x=1') redirect(response, '../c?y=2', status)
        else response.end(JSON.stringify(request.url))
      })
      const answer = await createTestedWire().requestJson(get(`${server.url}/a/b?x=1`))
      assert.equal(answer.body, '/c?y=2')
      assert.equal(answer.url, `${server.url}/c?y=2`)
      assert.equal(answer.attempts, 1)
    })
  }

  for (const status of [300, 304, 305]) {
    it(`returns ${status} as an answer`, async t => {
      const server = await serve(t, (_, response) => redirect(response, '/other', status))
      assert.equal((await createTestedWire().requestJson(get(server.url))).status, status)
      assert.equal(server.requests.length, 1)
    })
  }

  it('sends credentials again within the origin', async t => {
    const server = await serve(t, (request, response) =>
      request.url === '/' ? redirect(response, '/x') : response.end('{}'),
    )
    await createTestedWire().requestJson({ ...get(server.url), ...SECRETS })
    assert.deepEqual(
      server.requests.map(request => [request.headers['x-api-key'], request.headers.authorization]),
      [
        ['key', 'Bearer t'],
        ['key', 'Bearer t'],
      ],
    )
  })

  it('follows a Location in UTF-8, and one in Latin-1', async t => {
    const server = await serveSocket(t, socket =>
      socket.once('data', data => {
        const [, path = ''] = String(data).split(' ')
        const encoding = path === '/1' ? 'utf8' : 'latin1'
        const answer = /^\/\d$/.test(path)
          ? Buffer.from('HTTP/1.1 302 Found\r\nLocation: /größe.zip\r\nContent-Length: 0\r\n\r\n', encoding)
          : `HTTP/1.1 200 OK\r\nContent-Length: ${path.length + 2}\r\n\r\n"${path}"`
        socket.end(answer)
      }),
    )
    for (const path of ['/1', '/2'])
      assert.equal((await createTestedWire().requestJson(get(`${server.url}${path}`))).body, '/gr%C3%B6%C3%9Fe.zip')
  })

  it('drops credentials, authorization and cookie when the port changes', async t => {
    const other = await serve(t, (_, response) => response.end('{}'))
    const first = await serve(t, (_, response) => redirect(response, `${other.url}/blob`))
    await createTestedWire().requestJson({ ...get(first.url), ...SECRETS })
    const { headers } = other.requests[0] as { headers: Record<string, unknown> }
    assert.deepEqual(
      [headers['x-api-key'], headers['authorization'], headers['cookie']],
      [undefined, undefined, undefined],
    )
    assert.equal(headers['x-kept'], 'yes')
  })

  it('also drops a plain header with the name of a credential', async t => {
    const other = await serve(t, (_, response) => response.end('{}'))
    const first = await serve(t, (_, response) => redirect(response, other.url))
    const request = { ...get(first.url), credentials: { 'X-API-Key': 'key' }, headers: { 'x-api-key': 'key' } }
    await createTestedWire().requestJson(request)
    assert.equal(other.requests[0]?.headers['x-api-key'], undefined)
  })

  it('does not send credentials again when a later hop returns to the first origin', async t => {
    const other = await serve(t, (_, response) => redirect(response, `${first.url}/back`))
    const first = await serve(t, (request, response) =>
      request.url === '/' ? redirect(response, other.url) : response.end('{}'),
    )
    await createTestedWire().requestJson({ ...get(first.url), ...SECRETS })
    const back = first.requests[1]
    assert.equal(back?.url, '/back')
    assert.deepEqual([back?.headers['x-api-key'], back?.headers.authorization], [undefined, undefined])
  })

  it('never redirects a POST', async t => {
    const server = await serve(t, (_, response) => redirect(response, '/other', 307))
    const answer = await createTestedWire().requestJson({
      ...get(server.url),
      method: 'POST',
      followRedirects: true,
      body: {},
    })
    assert.deepEqual([answer.status, answer.headers['location'], server.requests.length], [307, '/other', 1])
  })

  it('returns the redirect as the answer when followRedirects is false', async t => {
    const server = await serve(t, (_, response) => redirect(response, '/other'))
    const answer = await createTestedWire().requestJson({ ...get(server.url), followRedirects: false })
    assert.deepEqual([answer.status, server.requests.length], [302, 1])
  })

  it('follows five redirects and refuses the sixth', async t => {
    const server = await serve(t, (request, response) => {
      const left = Number(request.url?.slice(1))
      if (left === 0) response.end('{}')
      else redirect(response, `/${left - 1}`)
    })
    assert.equal((await createTestedWire().requestJson(get(`${server.url}/5`))).status, 200)
    const sixth = createTestedWire().requestJson(get(`${server.url}/6`))
    await assert.rejects(sixth, { name: 'ArtifactError', code: 'bad_response' })
  })

  it("names the operator's URL, and no URL from an answer, when a chain of redirects does not end", async t => {
    const other = await serve(t, (request, response) =>
      redirect(response, request.url === '/loop' ? '/loop' : `${request.url}x`),
    )
    for (const path of ['/loop', '/chain']) {
      const hub = await serve(t, (_, response) => redirect(response, `${other.url}${path}`))
      const call = createTestedWire().requestJson(get(hub.url))
      await assert.rejects(call, { code: 'bad_response', message: new RegExp(`^${hub.url}: .*redirects`) })
    }
  })

  const foreignEnds: [name: string, answer: (socket: Socket) => void][] = [
    ['breaks off', socket => socket.destroy()],
    ['is not HTTP', socket => socket.end('SSH-2.0-secret\r\n')],
    ['is encoded', socket => socket.end('HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n')],
    ['leads nowhere', socket => socket.end('HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n')],
    ['is switched', socket => socket.end('HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n')],
    ['leads to a loop', socket => socket.end(`HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n`)],
    ['leads to a URL that is refused', socket => socket.end('HTTP/1.1 302 Found\r\nLocation: ftp://x/\r\n\r\n')],
    ['leads to this host', socket => socket.end('HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2/\r\n\r\n')],
  ]
  for (const [name, answer] of foreignEnds) {
    it(`does not name the target of a second redirect if its answer ${name}`, async t => {
      const last = await serveSocket(t, socket => socket.once('data', () => answer(socket)))
      const other = await serve(t, (_, response) => redirect(response, `${last.url}/`))
      const hub = await serve(t, (_, response) => redirect(response, other.url))
      const error = await createTestedWire()
        .requestJson(get(hub.url))
        .catch(error => error)
      assert.ok(last.connections() > 0)
      assert.ok(error instanceof DeployError)
      assert.ok(!error.message.includes(String(last.port)), error.message)
      assert.doesNotMatch(error.message, /SSH|ftp|127\.0\.0\.2/)
      assert.match(error.message, new RegExp(`${other.url}'s redirect target|^${hub.url}: `))
    })
  }

  it('names the target of the first redirect if nobody answers there, but not the target of a second one', async t => {
    const other = await serve(t, (_, response) => redirect(response, `http://127.0.0.1:${CLOSED_PORT}/`))
    const hub = await serve(t, (request, response) =>
      redirect(response, request.url === '/far' ? other.url : `http://127.0.0.1:${CLOSED_PORT}/`),
    )
    const messages = ['/near', '/far'].map(async path => {
      const call = createTestedWire().requestJson(get(`${hub.url}${path}`))
      return await call.catch(error => error.message)
    })
    const advice = 'check the URL, the network and any proxy.'
    assert.deepEqual(await Promise.all(messages), [
      `Could not connect to http://127.0.0.1:${CLOSED_PORT} (ECONNREFUSED): ${advice}`,
      `Could not connect to ${other.url}'s redirect target (ECONNREFUSED): ${advice}`,
    ])
  })

  it('names another server that redirects to itself', async t => {
    const other = await serve(t, (request, response) =>
      request.url === '/' ? redirect(response, '/next') : request.socket.destroy(),
    )
    const hub = await serve(t, (_, response) => redirect(response, `${other.url}/`))
    const error = await createTestedWire()
      .requestJson(get(hub.url))
      .catch(error => error)
    assert.ok(error.message.startsWith(`The connection to ${other.url} broke`), error.message)
  })

  it('does not quote the certificate of another server', {
    skip: certificate === undefined && 'openssl is not installed',
  }, async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { https_proxy: proxy.url })
    const other = await serveTls(t, certificate as object, (_, response) => response.end('{}'))
    const hub = await serve(t, (_, response) => redirect(response, `https://other.test:${other.port}/`))
    const wire = createTestedWire({ ca: certificate?.cert as string })
    const error = await wire.requestJson(get(hub.url)).catch(error => error)
    assert.match(
      error.message,
      /^The certificate of https:\/\/other\.test:\d+ was refused \(ERR_TLS_CERT_ALTNAME_INVALID\)/,
    )
    assert.doesNotMatch(error.message, /hub\.test|localhost/)
  })

  const useless: [name: string, headers: Record<string, string>][] = [
    ['without a Location', {}],
    ['with an empty Location', { Location: '' }],
    ['with a Location that is not a URL', { Location: 'https://[half' }],
    ['to itself', { Location: '/' }],
  ]
  for (const [name, headers] of useless) {
    it(`refuses a redirect ${name} without a retry`, async t => {
      const server = await serve(t, (_, response) => response.writeHead(302, headers).end())
      const request = { ...get(`${server.url}/`), retry: 'transient' } as const
      await assert.rejects(createTestedWire().requestJson(request), { name: 'ArtifactError', code: 'bad_response' })
      assert.equal(server.requests.length, 1)
    })
  }

  for (const target of ['http://hub.test/', 'file:///etc/passwd', 'ftp://127.0.0.1/', 'http://user:pw@127.0.0.1:9/']) {
    it(`refuses a redirect to ${target}`, async t => {
      const server = await serve(t, (_, response) => redirect(response, target))
      await assert.rejects(createTestedWire().requestJson(get(server.url)), {
        name: 'ConfigError',
        code: 'insecure_url',
      })
    })
  }

  for (const [target, reason] of [
    ['foo:bar', /to redirect to an https URL, found one with the scheme "foo": the redirect was not followed/],
    ['http://u:pw@127.0.0.1:9/', /found one with a user name or password: the redirect was not followed/],
  ] as const) {
    it(`says that it was a redirect that led to ${target}`, async t => {
      const server = await serve(t, (_, response) => redirect(response, target))
      await assert.rejects(createTestedWire().requestJson(get(server.url)), { message: reason })
    })
  }

  it('does not advise allow-http for a redirect that allow-http could not allow', {
    skip: certificate === undefined && 'openssl is not installed',
  }, async t => {
    const server = await serveTls(t, certificate as object, (_, response) => redirect(response, 'http://hub.test/'))
    const wire = createTestedWire({ ca: certificate?.cert as string })
    await assert.rejects(wire.requestJson(get(server.url)), {
      code: 'insecure_url',
      message: /redirects from https to http:\/\/hub\.test/,
    })
  })

  it('refuses a redirect from another host to this one', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const inside = await serve(t, (_, response) => response.end('{}'))
    const outside = await serve(t, (_, response) => redirect(response, inside.url))
    const wire = createTestedWire({ allowHttp: true })
    await assert.rejects(wire.requestJson(get(`http://hub.test:${outside.port}/`)), { code: 'insecure_url' })
    assert.deepEqual([outside.requests.length, inside.requests.length], [1, 0])
  })

  it('closes the connection of a redirect without reading its body', async t => {
    const closed = Promise.withResolvers<void>()
    const server = await serveSocket(t, async (socket, nth) => {
      if (nth === 1) {
        socket.resume().on('close', () => closed.resolve())
        socket.write('HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 999999999\r\n\r\nendless')
        return
      }
      await closed.promise
      socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}')
    })
    assert.equal((await createTestedWire().requestJson(get(`${server.url}/`))).status, 200)
  })

  it('logs a redirect without its path and query', async t => {
    const server = await serve(t, (request, response) =>
      request.url === '/' ? redirect(response, '/blob-s3cret?token=s3cret') : response.end('{}'),
    )
    const wire = createTestedWire()
    await wire.requestJson(get(server.url))
    assert.equal(wire.lines.length, 1)
    assert.doesNotMatch(wire.lines.join(), /s3cret/)
  })
})
