import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { request } from 'node:http'
import { describe, it } from 'node:test'
import { isLoopbackAuthority } from '../../hub/http/loopback.ts'
import { recordReport } from '../../hub/marketplace/reports.ts'
import { ADMIN_TOKEN, runHub } from './running-hub.ts'

const HOSTILE = `<script>alert('x')</script>"&`

describe('the fleet page', () => {
  it('shows hosts, versions, outcomes and the catalogue', async t => {
    const hub = await runHub(t)
    await hub.publish({ name: 'Hello world' })
    report(hub.store, { host_id: 'host-1', status: 'rolled_back', version: '0.9.0' })
    const page = await (await hub.call('/')).text()
    for (const text of ['reference hub', 'host-1', '0.9.0', 'rolled back', '2026-01-02 03:04 UTC', 'Hello world']) {
      assert.ok(page.includes(text), text)
    }
  })

  it('says when it is empty', async t => {
    const hub = await runHub(t)
    const page = await (await hub.call('/')).text()
    assert.match(page, /No deployment/)
    assert.match(page, /Nothing has been published/)
  })

  it('escapes all data', async t => {
    const hub = await runHub(t)
    await hub.publish({ name: HOSTILE })
    report(hub.store, { host_id: HOSTILE, error_message: HOSTILE, status: 'failed' })
    const page = await (await hub.call('/')).text()
    assert.equal(page.includes('<script'), false)
    assert.equal(page.split('&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;').length - 1, 3)
  })

  it('allows only its own style sheet', async t => {
    const hub = await runHub(t)
    const response = await hub.call('/')
    const policy = response.headers.get('content-security-policy') ?? ''
    const style = /<style>(.*)<\/style>/s.exec(await response.text())?.[1] ?? ''
    const digest = createHash('sha256').update(style).digest('base64')
    assert.match(policy, /default-src 'none'/)
    assert.ok(policy.includes(`style-src 'sha256-${digest}'`))
    assert.equal(policy.includes('unsafe'), false)
  })

  it('needs no token on the machine itself, under a loopback name only', async t => {
    const hub = await runHub(t)
    assert.equal(await statusUnderName(hub.url, 'localhost:1234'), 200)
    assert.equal(await statusUnderName(hub.url, 'attacker.example'), 401)
  })

  it('needs the token when other machines can reach it, even under a loopback name', async t => {
    const hub = await runHub(t, { host: '0.0.0.0' })
    assert.equal(await statusUnderName(hub.url, 'localhost'), 401)
  })

  for (const [name, authorization, status] of [
    ['nothing', undefined, 401],
    ['a wrong token', 'Bearer wrong-token-of-the-tests', 401],
    ['a wrong password', basic('admin:wrong'), 401],
    ['no password', basic('admin'), 401],
    ['the admin token', `Bearer ${ADMIN_TOKEN}`, 200],
    ['the admin token as a password', basic(`anybody:${ADMIN_TOKEN}`), 200],
  ] as const) {
    it(`answers ${status} to ${name} when other machines can reach it`, async t => {
      const hub = await runHub(t, { host: '0.0.0.0' })
      const response = await hub.call('/', authorization === undefined ? {} : { headers: { authorization } })
      assert.equal(response.status, status)
      assert.equal(response.headers.has('www-authenticate'), true)
    })
  }
})

describe('a Host header', () => {
  for (const authority of ['localhost', 'LOCALHOST:80', '127.0.0.1:8787', '127.1.2.3', '[::1]', '[::1]:8787']) {
    it(`of ${authority} means this machine`, () => assert.equal(isLoopbackAuthority(authority), true))
  }

  for (const authority of [
    undefined,
    '',
    'example.com',
    'localhost.example.com',
    '127.0.0.1.example.com',
    '128.0.0.1',
    '0.0.0.0',
    '[::2]',
    'localhost:80:80',
    'example.com@localhost',
  ]) {
    it(`of ${authority} does not mean this machine`, () => assert.equal(isLoopbackAuthority(authority), false))
  }
})

function report(store: Parameters<typeof recordReport>[0], change: Partial<Parameters<typeof recordReport>[2]>): void {
  recordReport(store, 'alice', {
    kind: 'plugin',
    slug: 'hello',
    version: '1.0.0',
    status: 'success',
    started_at: '2026-01-02T03:04:05Z',
    completed_at: '2026-01-02T03:04:06Z',
    host_id: 'host',
    repo: null,
    error_message: null,
    ...change,
  })
}

function basic(credentials: string): string {
  return `Basic ${Buffer.from(credentials).toString('base64')}`
}

function statusUnderName(url: string, host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { headers: { host }, agent: false }, response => {
      response.resume()
      resolve(response.statusCode)
    })
    sent.on('error', reject)
    sent.end()
  })
}
