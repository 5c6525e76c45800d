import assert from 'node:assert/strict'
import { lookup } from 'node:dns/promises'
import type { LookupFunction } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { describe, it, type TestContext } from 'node:test'
import { startConnectProxy, useProxyEnvironment } from '../connect-proxy.ts'
import { type LoopbackServer, serve } from '../loopback-server.ts'
import { openPrivateFile } from '../private-file.ts'
import { createTestedWire, get, type TestedWire } from '../tested-wire.ts'

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
