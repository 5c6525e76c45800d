import assert from 'node:assert/strict'
import { after, before, describe, it, type TestContext } from 'node:test'
import { rootCertificates } from 'node:tls'
import { readTrust } from '../../../src/net/policy/trust.ts'
import { type Certificate, makeCertificate } from '../certificates.ts'
import { startConnectProxy, useProxyEnvironment } from '../connect-proxy.ts'
import { serve, serveSocket, serveTls } from '../loopback-server.ts'
import { createTestedWire, get } from '../tested-wire.ts'

const certificate = makeCertificate()
const skip = certificate === undefined ? 'openssl is not installed' : false

function servePrivately(t: TestContext) {
  return serveTls(t, certificate as Certificate, (_, response) => response.end('{"tls":true}'))
}

describe('a server with a certificate from a private authority', { skip }, () => {
  const SECRET = { credentials: { 'X-API-Key': 'key' } }

  it('is refused without ca and never sees the request', async t => {
    const server = await servePrivately(t)
    const wire = createTestedWire()
    const call = wire.requestJson({ ...get(server.url), ...SECRET, retry: 'transient' })
    await assert.rejects(call, {
      name: 'ArtifactError',
      code: 'network',
      next: 'Set `ca-file`',
      message: /certificate.*ca-file/,
    })
    assert.deepEqual([server.connections(), server.requests.length, wire.lines], [1, 0, []])
  })

  it('is accepted with ca', async t => {
    const server = await servePrivately(t)
    const answer = await createTestedWire({ ca: certificate?.cert as string }).requestJson(get(server.url))
    assert.deepEqual(answer.body, { tls: true })
  })

  it('is refused under a name that its certificate does not contain', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { https_proxy: proxy.url })
    const server = await servePrivately(t)
    const wire = createTestedWire({ ca: certificate?.cert as string })
    await assert.rejects(wire.requestJson(get(`https://other.test:${server.port}`)), {
      code: 'network',
      next: undefined,
      message: /certificate.*Check the host name/,
    })
    assert.equal(server.requests.length, 0)
  })

  it('is refused through a proxy without ca', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { https_proxy: proxy.url })
    const server = await servePrivately(t)
    await assert.rejects(createTestedWire().requestJson(get(`https://hub.test:${server.port}`)), {
      code: 'network',
      message: /certificate/,
    })
    assert.equal(server.requests.length, 0)
  })

  it('is accepted with ca through a proxy with a certificate from the same authority', async t => {
    const proxy = await startConnectProxy(t, 'works', certificate)
    useProxyEnvironment(t, { https_proxy: proxy.url })
    const server = await servePrivately(t)
    const wire = createTestedWire({ ca: certificate?.cert as string })
    assert.equal((await wire.requestJson(get(`https://hub.test:${server.port}`))).status, 200)
    assert.equal(proxy.targets.length, 1)
  })

  it('cannot redirect to plain http, not even on loopback with allowHttp', async t => {
    const plain = await serve(t, (_, response) => response.end('{}'))
    const tls = await serveTls(t, certificate as Certificate, (_, response) =>
      response.writeHead(302, { Location: plain.url }).end(),
    )
    const wire = createTestedWire({ ca: certificate?.cert as string, allowHttp: true })
    await assert.rejects(wire.requestJson(get(tls.url)), { name: 'ConfigError', code: 'insecure_url' })
    assert.equal(plain.connections(), 0)
  })

  describe('with NODE_TLS_REJECT_UNAUTHORIZED=0', () => {
    const before_ = process.env['NODE_TLS_REJECT_UNAUTHORIZED']
    before(() => {
      process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0'
    })
    after(() => {
      if (before_ === undefined) delete process.env['NODE_TLS_REJECT_UNAUTHORIZED']
      else process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = before_
    })

    it('is refused', async t => {
      const server = await servePrivately(t)
      await assert.rejects(createTestedWire().requestJson(get(server.url)), { code: 'network' })
      assert.equal(server.requests.length, 0)
    })

    it('is refused with the ca of another authority', async t => {
      const server = await servePrivately(t)
      const wire = createTestedWire({ ca: makeCertificate()?.cert as string })
      await assert.rejects(wire.requestJson(get(server.url)), { code: 'network' })
      assert.equal(server.requests.length, 0)
    })

    it('is refused through a proxy', async t => {
      const proxy = await startConnectProxy(t)
      useProxyEnvironment(t, { https_proxy: proxy.url })
      const server = await servePrivately(t)
      await assert.rejects(createTestedWire().requestJson(get(`https://hub.test:${server.port}`)), { code: 'network' })
      assert.equal(server.requests.length, 0)
    })

    it('is refused as a proxy', async t => {
      const proxy = await startConnectProxy(t, 'refuses', certificate)
      useProxyEnvironment(t, { https_proxy: proxy.url })
      await assert.rejects(createTestedWire().requestJson(get('https://hub.test')), { code: 'network' })
      assert.deepEqual(proxy.targets, [])
    })
  })
})

describe('a file of authorities', { skip }, () => {
  const own = certificate?.cert ?? ''
  const other = rootCertificates[0] ?? ''
  for (const [name, ca] of [
    ['the first of two', `${own}${other}\n`],
    ['the last of two', `${other}\n${own}`],
    ['directly after another', `${other}${own}`],
    ['after a byte order mark', `\uFEFF${own}`],
    ['after a list that cannot be read', `${other}\n-----BEGIN X509 CRL-----\n!\n-----END X509 CRL-----\n${own}`],
    ['named in the older form', own.replaceAll(' CERTIFICATE', ' X509 CERTIFICATE')],
    ['in lines that end as on Windows', own.replaceAll('\n', '\r\n')],
    ['described in text', `Certificate:\n    Data:\n${own}the end`],
  ] as const)
    it(`makes a server trusted whose certificate is ${name}`, async t => {
      const server = await servePrivately(t)
      assert.equal((await createTestedWire({ ca }).requestJson(get(server.url))).status, 200)
    })
})

describe('readTrust', () => {
  for (const ca of ['', 'no certificate', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n']) {
    it(`refuses ${JSON.stringify(ca.slice(0, 20))} as ca`, () => {
      assert.throws(() => createTestedWire({ ca }), { name: 'ConfigError', code: 'invalid_input' })
    })
  }

  const [first = '', second = ''] = rootCertificates.map(pem => `${pem}\n`)
  const damaged = second.replace(/\n.{4}/, '\n!!!!')
  const unfinished = second.replace(/-----END.*\n/, '')
  const lines = first.split('\n').length
  for (const [name, ca, place] of [
    ['the first certificate', damaged + first, 'number 1 of 2, on line 1'],
    ['a later certificate', first + damaged + first, `number 2 of 3, on line ${lines}`],
    ['a certificate without an end', `${first}# comment\n${unfinished}`, `number 2 of 2, on line ${lines + 1}`],
    ['a certificate without an end before another', unfinished + first, 'number 1 of 2, on line 1'],
  ] as const)
    it(`names the place of damage to ${name}`, () => {
      const message = `ca-file contains a damaged certificate (${place}): check the file.`
      assert.throws(() => readTrust(ca), { code: 'invalid_input', message })
    })

  it('ignores a certificate in a comment', () => {
    assert.doesNotThrow(() => readTrust(first + damaged.replace(/^/gm, '# ')))
  })
})

describe('a TLS handshake that fails', () => {
  it('counts the request as not sent', async t => {
    const server = await serveSocket(t, socket => socket.once('data', () => socket.resetAndDestroy()))
    const call = createTestedWire().requestJson({
      ...get(server.url.replace('http:', 'https:')),
      retry: 'connection-only',
    })
    await assert.rejects(call, { code: 'network', sent: false })
    assert.equal(server.connections(), 4)
  })
})
