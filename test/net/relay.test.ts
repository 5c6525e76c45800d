import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import net from 'node:net'
import { networkInterfaces } from 'node:os'
import type { Duplex } from 'node:stream'
import { afterEach, describe, it, type TestContext } from 'node:test'
import { DeployError } from '../../src/core/errors.ts'
import { findProxy, type HttpProxy } from '../../src/net/proxy.ts'
import { type ChildRoute, Relay } from '../../src/net/relay.ts'
import { createWire, type WireOptions } from '../../src/net/wire.ts'

const hasIPv6 = Object.values(networkInterfaces()).some(all => all?.some(({ address }) => address === '::1'))

describe('the relay of a program that speaks HTTPS itself', () => {
  it('reaches an address that was approved, whatever the name resolves to elsewhere', async t => {
    const port = await startGreeter(t, '127.0.0.1')
    const relay = await startRelay(t, `https://git.test:${port}`, { addresses: ['127.0.0.1'] })
    assert.equal(await ask(relay.proxy, `git.test:${port}`), '200 hello')
    assert.equal(relay.received, 5)
  })

  it('reaches an address that the URL itself contains', { skip: hasIPv6 ? false : 'no IPv6 here' }, async t => {
    const port = await startGreeter(t, '::1')
    const relay = await startRelay(t, `https://[::1]:${port}/x`, { addresses: ['::1'] })
    assert.equal(await ask(relay.proxy, `[::1]:${port}`), '200 hello')
  })

  it('reaches nothing else, and nothing without its password', async t => {
    const port = await startGreeter(t, '127.0.0.1')
    const other = await startGreeter(t, '127.0.0.1')
    const { proxy } = await startRelay(t, `https://127.0.0.1:${port}`, { addresses: ['127.0.0.1'] })
    assert.equal(await ask(proxy, `127.0.0.1:${other}`), '407 ')
    assert.equal(await ask(proxy.replace(/:[0-9a-f]{48}@/, ':guess@'), `127.0.0.1:${port}`), '407 ')
  })

  it('passes on no byte beyond the limit', async t => {
    const port = await startGreeter(t, '127.0.0.1')
    const relay = await startRelay(t, `https://127.0.0.1:${port}`, { addresses: ['127.0.0.1'] }, 4)
    assert.equal(await ask(relay.proxy, `127.0.0.1:${port}`), '200 ')
    assert.equal(relay.isOverflowing, true)
  })

  it('says that a server could not be reached', async t => {
    const relay = await startRelay(t, 'https://127.0.0.1:1', { addresses: ['127.0.0.1'] })
    await assert.rejects(ask(relay.proxy, '127.0.0.1:1'), { code: 'ECONNRESET' })
    assert.equal(relay.isUnreached, true)
  })

  it("goes through the environment's proxy, with the password of that proxy", async t => {
    const port = await startGreeter(t, '127.0.0.1')
    const seen: unknown[] = []
    const proxy = http.createServer().listen(0, '127.0.0.1')
    proxy.on('connect', ({ url, headers }: IncomingMessage, client: Duplex) => {
      seen.push(url, headers['proxy-authorization'])
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      net.connect(port, '127.0.0.1').pipe(client)
    })
    await once(proxy, 'listening')
    t.after(() => proxy.close())
    const { port: at } = proxy.address() as AddressInfo
    const relay = await startRelay(t, 'https://git.test', {
      proxy: findProxy(new URL('https://git.test'), { https_proxy: `http://me:p%40ss@127.0.0.1:${at}` }) as HttpProxy,
    })
    assert.equal(await ask(relay.proxy, 'git.test:443'), '200 hello')
    assert.deepEqual(seen, ['git.test:443', `Basic ${Buffer.from('me:p@ss').toString('base64')}`])
  })
})

async function startGreeter(t: TestContext, address: string): Promise<number> {
  const server = net.createServer(socket => socket.on('error', () => {}).end('hello')).listen(0, address)
  await once(server, 'listening')
  t.after(() => server.close())
  return (server.address() as AddressInfo).port
}

async function startRelay(t: TestContext, url: string, route: ChildRoute, maxBytes = 1000) {
  const relay = new Relay({ url: new URL(url), route, maxBytes })
  t.after(() => relay.close())
  const proxy = await relay.open()
  return Object.assign(relay, { proxy })
}

/** The status of a CONNECT, and all bytes that arrive after it. */
async function ask(proxy: string, path: string): Promise<string> {
  const { hostname, port, username, password } = new URL(proxy)
  const headers = { 'proxy-authorization': `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` }
  const asked = http.request({ host: hostname, port, method: 'CONNECT', path, headers, agent: false }).end()
  const [answer, socket, head] = (await once(asked, 'connect')) as [IncomingMessage, Duplex, Buffer]
  const pieces = [head]
  socket.on('data', piece => pieces.push(piece)).on('error', () => {})
  if (!socket.closed) await new Promise(resolve => socket.once('close', resolve).end())
  return `${answer.statusCode} ${Buffer.concat(pieces)}`
}

const HUB = new URL('https://hub.example.org')
const names: Readonly<Record<string, readonly string[]>> = {
  'hub.example.org': ['203.0.113.1'],
  'git.example.org': ['203.0.113.2', '127.0.0.1', '2001:db8::2'],
  'evil.example.org': ['127.0.0.1', '169.254.169.254'],
}

const resolve = ((name: string, _options: object, callback: (error: Error | null, found?: object[]) => void) => {
  const found = names[name]
  if (found === undefined) callback(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }))
  else
    callback(
      null,
      found.map(address => ({ address, family: address.includes(':') ? 6 : 4 })),
    )
}) as never

async function route(url: string, more: Partial<WireOptions> = {}): Promise<unknown> {
  const addresses = { resolve, ownAddresses: () => ['198.51.100.7'] }
  const wire = createWire({ allowHttp: false, userAgent: 'test', log: () => {}, addresses, ...more })
  try {
    return await wire.routeForChild(new URL(url), HUB)
  } catch (error) {
    return error instanceof DeployError ? error.code : error
  }
}

describe('the route of another program to a URL that a publisher chose', () => {
  afterEach(() => {
    delete process.env['https_proxy']
  })

  it('leads to the approved addresses, and to no others of the name', async () => {
    assert.deepEqual(await route('https://git.example.org/x'), { addresses: ['203.0.113.2', '2001:db8::2'] })
    assert.deepEqual(await route('https://203.0.113.9:8443/x'), { addresses: ['203.0.113.9'] })
    assert.deepEqual(await route('https://[2001:db8::9]/x'), { addresses: ['2001:db8::9'] })
  })

  for (const host of [
    'evil.example.org',
    '127.0.0.1',
    '0x7f000001',
    '[::1]',
    '[::ffff:127.0.0.1]',
    '169.254.169.254',
    '198.51.100.7',
  ])
    it(`does not lead to ${host}`, async () => assert.equal(await route(`https://${host}/x`), 'insecure_url'))

  it('is refused if a name has no address, the resolver does not answer, or the run is cancelled', async () => {
    assert.equal(await route('https://absent.example.org'), 'network')
    const reason = new DeployError('cancelled', 'cancelled')
    assert.equal(await route('https://git.example.org', { signal: AbortSignal.abort(reason) }), 'cancelled')
    const silent = { resolve: (() => {}) as never }
    const timeouts = { connectMs: 1 }
    assert.equal(await route('https://git.example.org', { addresses: silent, timeouts }), 'timeout')
  })

  it('is the proxy of the environment, which resolves names itself', async () => {
    process.env['https_proxy'] = 'http://proxy.example.org:3128'
    assert.deepEqual(await route('https://git.example.org'), { proxy: findProxy(new URL('https://git.example.org')) })
    assert.equal(await route('https://x.localhost'), 'insecure_url')
  })
})
