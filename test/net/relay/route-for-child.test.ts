import assert from 'node:assert/strict'
import { afterEach, describe, it } from 'node:test'
import { DeployError } from '../../../src/core/errors.ts'
import { createWire, type WireOptions } from '../../../src/net/wire.ts'

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
    assert.deepEqual(await route('https://git.example.org'), { proxy: 'http://proxy.example.org:3128/' })
    assert.equal(await route('https://x.localhost'), 'insecure_url')
  })
})
