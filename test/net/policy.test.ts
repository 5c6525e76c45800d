import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { lookup } from 'node:dns/promises'
import { readFileSync } from 'node:fs'
import type { LookupFunction } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import { rootCertificates } from 'node:tls'
import { isLoopback, parseRequestUrl, readTrust, refuseInsecureHop } from '../../src/net/policy.ts'
import { temporaryDirectory } from '../folders.ts'
import {
  type Certificate,
  type LoopbackServer,
  makeCertificate,
  serve,
  serveSocket,
  serveTls,
  startConnectProxy,
  useProxyEnvironment,
} from './loopback-server.ts'
import { createTestedWire, get, openPrivateFile, type TestedWire } from './tested-wire.ts'

const REFUSED = { name: 'ConfigError', code: 'insecure_url' }
/** Addresses from the IPv4 and IPv6 networks reserved for documentation, where nothing answers. */
const [ELSEWHERE, ELSEWHERE_6] = ['192.0.2.1', '2001:db8::1']

type Names = Readonly<Record<string, string | readonly string[]>>

/**
 * A resolver that knows these names. The nth question about a name gets the nth answer of its list; once the list is
 * used up, each question gets the last answer.
 */
function resolverOf(names: Names): { resolve: LookupFunction; asked: string[] } {
  const asked: string[] = []
  const resolve: LookupFunction = (name, _, callback) => {
    const answers = [names[name] ?? []].flat()
    const address = answers[Math.min(asked.filter(other => other === name).length, answers.length - 1)]
    asked.push(name)
    if (address === undefined) return callback(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }), [])
    const addresses = address.split(' ').map(text => ({ address: text, family: text.includes(':') ? 6 : 4 }))
    callback(null, addresses)
  }
  return { resolve, asked }
}

function wireOf(names: Names, own: readonly string[] = []): TestedWire {
  const { resolve } = resolverOf(names)
  return createTestedWire({ allowHttp: true, addresses: { resolve, ownAddresses: () => own } })
}

/** A hub that redirects `/` to this URL. Its other paths stand for another service on the same port. */
async function serveRedirect(t: TestContext, target: (port: number) => string): Promise<LoopbackServer> {
  const server: LoopbackServer = await serve(t, (request, response) => {
    if (request.url === '/') response.writeHead(302, { location: target(server.port) }).end()
    else response.end('{"internal": true}')
  })
  return server
}

describe('a redirect', () => {
  const HUB = { 'hub.test': '127.0.0.1' }
  const reaches: Record<string, string> = {
    'another loopback address': '127.0.0.2',
    'the IPv6 loopback address': '::1',
    'an IPv4 loopback address in IPv6': '::ffff:127.0.0.2',
    'the unspecified address': '0.0.0.0',
    'the unspecified IPv6 address': '::',
    "the link-local address of a cloud's metadata service": '169.254.169.254',
    'an IPv6 link-local address': 'fe80::1%eth0',
    'an address of this host': ELSEWHERE,
    'an IPv6 address of this host': ELSEWHERE_6,
  }
  for (const [what, address] of Object.entries(reaches)) {
    it(`does not reach ${what} by a name`, async t => {
      const hub = await serveRedirect(t, port => `http://internal.test:${port}/x`)
      const wire = wireOf({ ...HUB, 'internal.test': address }, [ELSEWHERE, `${ELSEWHERE_6}%eth0`])
      await assert.rejects(wire.requestJson(get(`http://hub.test:${hub.port}/`)), REFUSED)
      assert.equal(hub.requests.length, 1)
    })

    it(`does not reach ${what} when the URL itself contains it`, async t => {
      const literal = address.includes(':') ? `[${address.replace(/%.*/, '')}]` : address
      const hub = await serveRedirect(t, port => `http://${literal}:${port}/x`)
      const wire = wireOf(HUB, [ELSEWHERE, ELSEWHERE_6])
      await assert.rejects(wire.requestJson(get(`http://hub.test:${hub.port}/`)), REFUSED)
      assert.equal(hub.requests.length, 1)
    })
  }

  it("does not reach this host by this host's own name, as the system resolves it", async t => {
    const addresses = await lookup(hostname(), { all: true }).catch(() => [])
    if (addresses.length === 0 || addresses.some(({ address }) => address === '127.0.0.1'))
      return t.skip('the name of this host has no address of its own')
    const hub = await serveRedirect(t, port => `http://${hostname()}:${port}/x`)
    await assert.rejects(createTestedWire({ allowHttp: true }).requestJson(get(hub.url)), REFUSED)
    assert.equal(hub.requests.length, 1)
  })

  it('does not reach an interface of this host by any name', async t => {
    const found = Object.values(networkInterfaces()).flatMap(addresses => addresses ?? [])
    const own = found.find(({ internal }) => !internal)?.address
    if (own === undefined) return t.skip('this host has no interface other than loopback')
    const hub = await serveRedirect(t, port => `http://internal.test:${port}/x`)
    const { resolve } = resolverOf({ ...HUB, 'internal.test': own })
    const wire = createTestedWire({ allowHttp: true, addresses: { resolve } })
    await assert.rejects(wire.requestJson(get(`http://hub.test:${hub.port}/`)), REFUSED)
  })

  it("reaches the address of the operator's own URL under another name", async t => {
    const hub = await serveRedirect(t, port => `http://storage.test:${port}/x`)
    const wire = wireOf({ ...HUB, 'storage.test': '127.0.0.1' })
    const { body } = await wire.requestJson(get(`http://hub.test:${hub.port}/`))
    assert.deepEqual(body, { internal: true })
  })

  it('reaches only those of several addresses that are allowed', async t => {
    const hub = await serveRedirect(t, port => `http://storage.test:${port}/x`)
    const wire = wireOf({ ...HUB, 'storage.test': '::1 127.0.0.1' })
    assert.deepEqual((await wire.requestJson(get(`http://hub.test:${hub.port}/`))).body, { internal: true })
  })

  it("does not reach an address to which the hub's own name resolves only after the first answer", async t => {
    const elsewhere = await serve(t, (_, response) => response.end('{}'))
    const hub = await serveRedirect(t, () => `http://hub.test:${elsewhere.port}/x`)
    const { resolve } = resolverOf({ 'hub.test': ['127.0.0.1', '127.0.0.2', '127.0.0.2'] })
    const wire = createTestedWire({ allowHttp: true, addresses: { resolve, ownAddresses: () => [] } })
    await assert.rejects(wire.requestJson(get(`http://hub.test:${hub.port}/`)), REFUSED)
    assert.equal(elsewhere.requests.length, 0)
  })

  it('does not reach localhost or a loopback address through a proxy', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    for (const host of ['localhost', 'a.localhost', 'localhost.', '127.0.0.2', '[::1]']) {
      const hub = await serveRedirect(t, port => `http://${host}:${port}/x`)
      const wire = wireOf({ localhost: '127.0.0.1', 'a.localhost': '127.0.0.1', 'localhost.': '127.0.0.1' })
      await assert.rejects(wire.requestJson(get(`http://hub.test:${hub.port}/`)), REFUSED, host)
    }
  })
})

describe('a URL that the hub chose for a download', () => {
  const download = (t: TestContext, wire: TestedWire, url: string, hub: string) =>
    wire.download({ url, hub, fd: openPrivateFile(t).fd, maxBytes: 1000, timeoutMs: 600_000 })

  it('reaches this host neither before nor after the hub itself was reached', async t => {
    const internal = await serve(t, (_, response) => response.end('internal'))
    const hub = await serve(t, (_, response) => response.end('{}'))
    const names = { 'hub.test': '127.0.0.1', 'internal.test': '127.0.0.2', 'other.test': ELSEWHERE }
    const wire = wireOf(names)
    const url = `http://internal.test:${internal.port}/x`
    await assert.rejects(download(t, wire, url, 'http://other.test/'), REFUSED)
    await wire.requestJson(get(`http://hub.test:${hub.port}/`))
    await assert.rejects(download(t, wire, url, `http://hub.test:${hub.port}/`), REFUSED)
    await assert.rejects(download(t, wire, `http://127.0.0.1:${internal.port}/`, 'http://other.test/'), REFUSED)
    assert.equal(internal.requests.length, 0)
  })

  it('reaches the address of the hub', async t => {
    const storage = await serve(t, (_, response) => response.end('bytes'))
    const wire = wireOf({ 'hub.test': '127.0.0.1', 'storage.test': '127.0.0.1' })
    for (const host of ['storage.test', '127.0.0.1', 'hub.test'])
      assert.ok((await download(t, wire, `http://${host}:${storage.port}/x`, 'http://hub.test:1/')).ok)
  })
})

describe('parseRequestUrl', () => {
  const accepted: [name: string, url: string, allowHttp: boolean][] = [
    ['https', 'https://hub.test/base', false],
    ['plain http to 127.0.0.1', 'http://127.0.0.1:8080', false],
    ['plain http to all of 127.0.0.0/8', 'http://127.9.8.7', false],
    ['plain http to ::1', 'http://[::1]:8080', false],
    ['plain http to localhost', 'http://LOCALHOST', false],
    ['plain http to another host with allowHttp', 'http://hub.test', true],
  ]
  for (const [name, url, allowHttp] of accepted) {
    it(`accepts ${name}`, () => assert.equal(parseRequestUrl(url, { allowHttp }).href, new URL(url).href))
  }

  const refused: [name: string, url: string, code: string, allowHttp: boolean][] = [
    ['plain http to another host', 'http://hub.test', 'insecure_url', false],
    ['a name that starts like a loopback address', 'http://127.0.0.1.evil.test', 'insecure_url', false],
    ['a name below localhost', 'http://a.localhost', 'insecure_url', false],
    ['a private address', 'http://10.0.0.1', 'insecure_url', false],
    ['the unspecified address', 'http://0.0.0.0', 'insecure_url', false],
    ['a file', 'file:///etc/passwd', 'insecure_url', true],
    ['ftp', 'ftp://hub.test/a', 'insecure_url', true],
    ['a user name', 'https://user@hub.test', 'insecure_url', true],
    ['a password', 'https://:secret@hub.test', 'insecure_url', true],
    ['text that is not a URL', 'hub.test', 'invalid_input', true],
    ['an empty text', '', 'invalid_input', true],
  ]
  for (const [name, url, code, allowHttp] of refused) {
    it(`refuses ${name}`, () => assert.throws(() => parseRequestUrl(url, { allowHttp }), { name: 'ConfigError', code }))
  }

  for (const url of [
    'https://user:s3cret@hub.test',
    '//user:s3cret@hub.test/?t=s3cret',
    'hub.test/?token=s3cret#s3cret',
  ]) {
    it(`quotes no secret from ${url}`, () => {
      assert.throws(
        () => parseRequestUrl(url, { allowHttp: false }),
        (error: Error) => !error.message.includes('s3cret'),
      )
    })
  }
})

describe('refuseInsecureHop', () => {
  const refused: [from: string, to: string][] = [
    ['https://hub.test', 'http://hub.test'],
    ['https://hub.test', 'http://127.0.0.1'],
    ['https://127.0.0.1', 'http://127.0.0.1'],
    ['https://hub.test', 'foo:bar'],
    ['http://hub.test', 'foo:bar'],
    ['http://hub.test', 'https://user@blobs.test'],
  ]
  for (const [from, to] of refused) {
    it(`refuses ${from} to ${to}`, () => {
      assert.throws(() => refuseInsecureHop(new URL(from), new URL(to)), { name: 'ConfigError', code: 'insecure_url' })
    })
  }

  const accepted: [from: string, to: string][] = [
    ['https://hub.test', 'https://blobs.test'],
    ['http://127.0.0.1', 'https://blobs.test'],
    ['http://hub.test', 'http://blobs.test'],
  ]
  for (const [from, to] of accepted) {
    it(`accepts ${from} to ${to}`, () => refuseInsecureHop(new URL(from), new URL(to)))
  }
})

describe('isLoopback', () => {
  for (const host of ['127.1', '0x7f.0.0.1', '2130706433']) {
    it(`recognizes ${host} by the address that the URL parser makes of it`, () => {
      assert.equal(isLoopback(new URL(`http://${host}`).hostname), true)
    })
  }
})

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

/** A server's key and certificate, and the intermediate authority that vouches for it, whose root nobody has. */
function makeIntermediate(t: TestContext) {
  const folder = temporaryDirectory(t)
  const make = (name: string, issuer: string | undefined, extension: string): void => {
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', `${name}.key`]
    const by = issuer === undefined ? [] : ['-CA', `${issuer}.pem`, '-CAkey', `${issuer}.key`]
    const more = ['-subj', `/CN=${name}`, '-days', '30', '-addext', extension, '-out', `${name}.pem`]
    execFileSync('openssl', ['req', '-x509', ...key, ...by, ...more], { cwd: folder, stdio: 'ignore' })
  }
  make('root', undefined, 'basicConstraints=critical,CA:TRUE')
  make('intermediate', 'root', 'basicConstraints=critical,CA:TRUE')
  make('server', 'intermediate', 'subjectAltName=IP:127.0.0.1')
  const read = (name: string): string => readFileSync(join(folder, name), 'utf8')
  return { key: read('server.key'), cert: read('server.pem'), intermediate: read('intermediate.pem') }
}

describe('readTrust', () => {
  it('trusts an intermediate authority without its root, as curl does', { skip }, async t => {
    const { intermediate, ...identity } = makeIntermediate(t)
    const server = await serveTls(t, identity, (_, response) => response.end('{}'))
    assert.equal((await createTestedWire({ ca: intermediate }).requestJson(get(server.url))).status, 200)
  })

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
