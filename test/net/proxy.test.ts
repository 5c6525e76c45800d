import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { makeCertificate } from './certificates.ts'
import { startConnectProxy, useProxyEnvironment } from './connect-proxy.ts'
import { serve, serveTls } from './loopback-server.ts'
import { openPrivateFile } from './private-file.ts'
import { createTestedWire, get } from './tested-wire.ts'

const certificate = makeCertificate()

describe('a proxy that the environment names', () => {
  it('carries plain http', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.end('{"a":1}'))
    const answer = await createTestedWire({ allowHttp: true }).requestJson(get(`http://hub.test:${server.port}/`))
    assert.deepEqual([answer.body, proxy.targets], [{ a: 1 }, [`hub.test:${server.port}`]])
    assert.equal(server.requests[0]?.headers.host, `hub.test:${server.port}`)
  })

  const skip = certificate === undefined ? 'openssl is not installed' : false
  it('carries https, end to end', { skip }, async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { https_proxy: proxy.url })
    const server = await serveTls(t, certificate ?? {}, (_, response) => response.end('{"a":1}'))
    const wire = createTestedWire({ ca: certificate?.cert ?? '' })
    const answer = await wire.requestJson(get(`https://hub.test:${server.port}/`))
    assert.deepEqual([answer.body, proxy.targets], [{ a: 1 }, [`hub.test:${server.port}`]])
  })

  it('carries plain http over TLS, and repeats no request that may have arrived', { skip }, async t => {
    const proxy = await startConnectProxy(t, 'works', certificate)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.destroy())
    const wire = createTestedWire({ allowHttp: true, ca: certificate?.cert ?? '' })
    const post = {
      ...get(`http://hub.test:${server.port}/`),
      method: 'POST',
      body: {},
      retry: 'connection-only',
    } as const
    await assert.rejects(wire.requestJson(post), { code: 'network', sent: true })
    assert.equal(server.requests.length, 1)
  })

  it('carries a download', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.end(Buffer.alloc(3_000_000)))
    const wire = createTestedWire({ allowHttp: true })
    const request = {
      url: `http://hub.test:${server.port}/`,
      fd: openPrivateFile(t).fd,
      maxBytes: 4_000_000,
      timeoutMs: 600_000,
    }
    const answer = await wire.download(request)
    assert.ok(answer.ok && answer.size === 3_000_000)
  })

  it('gets its own credentials, which the server does not get', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url.replace('//', '//user:p%40ss@') })
    const server = await serve(t, (_, response) => response.end())
    await createTestedWire({ allowHttp: true }).requestJson(get(`http://hub.test:${server.port}/`))
    assert.deepEqual(proxy.authorizations, [`Basic ${Buffer.from('user:p@ss').toString('base64')}`])
    assert.equal(server.requests[0]?.headers['proxy-authorization'], undefined)
  })

  it('is not used for loopback addresses', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.end())
    await createTestedWire().requestJson(get(server.url))
    assert.deepEqual(proxy.targets, [])
  })

  it('is not used for hosts that no_proxy names', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url, no_proxy: '.test' })
    const unresolvable = `http://${'a'.repeat(64)}.test/`
    await assert.rejects(createTestedWire({ allowHttp: true }).requestJson(get(unresolvable)), { code: 'network' })
    assert.deepEqual(proxy.targets, [])
  })

  it('is asked for port 443 when an https URL names none', async t => {
    const proxy = await startConnectProxy(t, 'refuses')
    useProxyEnvironment(t, { https_proxy: proxy.url })
    await assert.rejects(createTestedWire().requestJson(get('https://hub.test/')), { code: 'network', sent: false })
    assert.deepEqual(proxy.targets, ['hub.test:443'])
  })

  it('is reported with its answer when it refuses', async t => {
    const proxy = await startConnectProxy(t, 'refuses')
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const wire = createTestedWire({ allowHttp: true })
    const call = wire.requestJson({ ...get('http://hub.test/'), retry: 'connection-only' })
    await assert.rejects(call, { code: 'network', sent: false, message: /403/ })
    assert.equal(proxy.targets.length, 4)
  })
})
