import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { startHub } from '../../hub/server.ts'
import { openStore } from '../../hub/store.ts'
import { ADMIN_TOKEN, errorOf, newFolder, runHub } from './running-hub.ts'

const MIB = 1024 * 1024

describe('the hub', () => {
  it('reports its health', async t => {
    const hub = await runHub(t)
    assert.deepEqual(await (await hub.call('/healthz')).json(), { status: 'ok' })
  })

  for (const host of ['1.2.3.4.5', '256.1.1.1', '0x7f.1.2.3.4', 'a b', '[::1', '127.0.0.1:99999'])
    it(`answers 400 to the Host header ${JSON.stringify(host)}`, async t => {
      const hub = await runHub(t)
      const answer = request(`${hub.url}/healthz`, { headers: { Host: host } }).end()
      const [{ statusCode }] = await once(answer, 'response')
      assert.equal(statusCode, 400)
      answer.destroy()
    })

  for (const [method, path, status, allow] of [
    ['GET', '/nothing', 404, null],
    ['PUT', '/plugins', 405, 'GET, HEAD'],
    ['POST', '/nothing', 404, null],
    ['PUT', '/plugins/hello', 405, 'GET, HEAD'],
    ['DELETE', '/services/hello/install', 405, 'GET, HEAD'],
    ['GET', '/devkeys/api-keys', 405, 'POST'],
    ['GET', '/deployments/report', 405, 'POST'],
    ['POST', '/', 405, 'GET, HEAD'],
  ] as const) {
    it(`answers ${status} to ${method} ${path}`, async t => {
      const hub = await runHub(t)
      const response = await hub.call(path, { method })
      assert.equal(response.status, status)
      assert.equal(response.headers.get('allow'), allow)
      assert.ok(await errorOf(response))
    })
  }

  for (const [name, options, status] of [
    ['malformed JSON', { body: '{"name": ' }, 400],
    ['an empty body', { body: '' }, 400],
    ['a different content type', { body: 'name=ci', headers: { 'Content-Type': 'text/plain' } }, 415],
    ['a body over the limit', { body: JSON.stringify({ name: 'ci', pad: 'x'.repeat(MIB) }) }, 413],
    ['a body far over the limit', { body: 'x'.repeat(20 * MIB) }, 413],
  ] as const) {
    it(`answers ${status} to ${name}`, async t => {
      const hub = await runHub(t)
      const response = await hub.call('/devkeys/api-keys', { bearer: ADMIN_TOKEN, ...options })
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
    })
  }

  it('accepts a body of exactly 1 MiB', async t => {
    const hub = await runHub(t)
    const body = '{"name":"ci"}'.padEnd(MIB)
    assert.equal((await hub.call('/devkeys/api-keys', { bearer: ADMIN_TOKEN, body })).status, 201)
  })

  it('answers 413 to a body over the limit without an announced length', async t => {
    const hub = await runHub(t)
    const response = await fetch(`${hub.url}/devkeys/api-keys`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${ADMIN_TOKEN}`, 'Content-Type': 'application/json' },
      body: new Blob(['{"name":"ci"}'.padEnd(MIB + 1)]).stream(),
      duplex: 'half',
    } as RequestInit)
    assert.equal(response.status, 413)
    assert.ok(await errorOf(response))
  })

  it('keeps its data and its admin token across a restart', async t => {
    const dataDir = join(newFolder(t), 'data')
    const first = await startHub({ dataDir })
    const issued = await issueKey(first.url, first.adminToken)
    const { key } = (await issued.json()) as { key: string }
    await first.close()
    const second = await startHub({ dataDir })
    t.after(() => second.close())
    assert.equal(second.adminToken, undefined)
    assert.equal((await issueKey(second.url, first.adminToken)).status, 201)
    const hosts = await fetch(`${second.url}/deployments/plugin/hello/hosts`, { headers: { 'X-API-Key': key } })
    assert.deepEqual(await hosts.json(), [])
  })

  it('accepts a given admin token', async t => {
    const hub = await runHub(t)
    assert.equal((await issueKey(hub.url, ADMIN_TOKEN)).status, 201)
  })

  it('refuses a short admin token', async t => {
    await assert.rejects(startHub({ dataDir: newFolder(t), adminToken: 'short' }), { status: 400 })
  })

  it('throws when its port is in use', async t => {
    const other = createServer().listen(0, '127.0.0.1')
    t.after(() => other.close())
    await new Promise(resolve => other.once('listening', resolve))
    const { port } = other.address() as AddressInfo
    await assert.rejects(startHub({ dataDir: newFolder(t), port }), { code: 'EADDRINUSE' })
  })

  it('can be closed twice', async t => {
    const hub = await startHub({ dataDir: newFolder(t) })
    await hub.close()
    await hub.close()
    await assert.rejects(fetch(`${hub.url}/healthz`), { message: 'fetch failed' })
  })
})

describe('the data folder', () => {
  it('is refused if a newer hub has written it', t => {
    const dataDir = newFolder(t)
    const store = openStore(dataDir)
    store.db.exec('PRAGMA user_version = 99')
    store.close()
    assert.throws(() => openStore(dataDir), { status: 500 })
  })
})

function issueKey(url: string, adminToken: string | undefined): Promise<Response> {
  return fetch(`${url}/devkeys/api-keys`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${adminToken}`, 'Content-Type': 'application/json' },
    body: '{"name":"ci"}',
  })
}
