import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { listProjectKeys, revokeProjectKey } from '../../../hub/project/keys.ts'
import { errorOf, runHub } from '../running-hub.ts'
import { authorize, logIn, newValue, REPORT, report, runShopHub } from './project-client.ts'

const LATEST = '/v1/projects/shop/versions/latest'
const HOUR_MS = 3_600_000

describe('POST /v1/auth', () => {
  it('exchanges a dev key for a token that is valid for one hour', async t => {
    const hub = await runHub(t)
    const response = await hub.call('/v1/auth', { json: { xdevkey: newValue(hub, 'devkey'), project_id: 'shop' } })
    assert.equal(response.status, 200)
    const { access_token, expires_in } = (await response.json()) as Record<string, unknown>
    assert.match(String(access_token), /^access_[\w-]{43}$/)
    assert.equal(expires_in, 3600)
  })

  it('stores neither the token nor the dev key', async t => {
    const hub = await runHub(t)
    const devkey = newValue(hub, 'devkey')
    const token = await logIn(hub, devkey)
    for (const file of ['hub.sqlite', 'hub.sqlite-wal']) {
      const bytes = readFileSync(join(hub.dataDir, file))
      for (const secret of [devkey, token]) assert.equal(bytes.includes(secret), false)
    }
  })

  for (const [name, status, json] of [
    ['an unknown dev key', 401, { xdevkey: 'devkey_unknown', project_id: 'shop' }],
    ['a dev key that is SQL', 401, { xdevkey: "' OR '1'='1", project_id: 'shop' }],
    ['a missing dev key', 400, { project_id: 'shop' }],
    ['an empty dev key', 400, { xdevkey: '', project_id: 'shop' }],
    ['a dev key that is a list', 400, { xdevkey: ['x'], project_id: 'shop' }],
    ['an overlong dev key', 400, { xdevkey: 'x'.repeat(513), project_id: 'shop' }],
    ['a missing project', 400, { xdevkey: 'x' }],
    ['a project id that is a path', 400, { xdevkey: 'x', project_id: '..' }],
  ] as const) {
    it(`answers ${status} to ${name}`, async t => {
      const hub = await runHub(t)
      const response = await hub.call('/v1/auth', { json })
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
    })
  }

  it('answers 403 to the dev key of another project', async t => {
    const hub = await runHub(t)
    const json = { xdevkey: newValue(hub, 'devkey', 'other'), project_id: 'shop' }
    const response = await hub.call('/v1/auth', { json })
    assert.equal(response.status, 403)
    assert.match(await errorOf(response), /other/)
  })

  it('answers 401 to a deployment credential', async t => {
    const hub = await runHub(t)
    const json = { xdevkey: newValue(hub, 'credential'), project_id: 'shop' }
    assert.equal((await hub.call('/v1/auth', { json })).status, 401)
  })

  it('answers 401 to a revoked dev key and its tokens', async t => {
    const hub = await runHub(t)
    const xdevkey = newValue(hub, 'devkey')
    const token = await logIn(hub, xdevkey)
    revokeProjectKey(hub.store, listProjectKeys(hub.store)[0]?.id ?? '')
    assert.equal((await hub.call('/v1/auth', { json: { xdevkey, project_id: 'shop' } })).status, 401)
    assert.equal((await hub.call(LATEST, { bearer: token })).status, 401)
  })
})

describe('an access token', () => {
  it('is valid for one hour and no longer', async t => {
    let now = 1_000_000
    const shop = await runShopHub(t, { now: () => now })
    now += HOUR_MS - 1
    assert.equal((await shop.hub.call(LATEST, { bearer: shop.token })).status, 200)
    now += 1
    assert.equal((await shop.hub.call(LATEST, { bearer: shop.token })).status, 401)
    assert.equal((await authorize(shop)).status, 401)
    assert.equal((await report(shop)).status, 401)
  })

  it('stays valid when a newer one is issued and expired ones are deleted', async t => {
    let now = 1_000_000
    const shop = await runShopHub(t, { now: () => now })
    now += HOUR_MS / 2
    const devkey = newValue(shop.hub, 'devkey')
    const newer = await logIn(shop.hub, devkey)
    now += HOUR_MS / 2
    await logIn(shop.hub, devkey)
    assert.equal((await shop.hub.call(LATEST, { bearer: newer })).status, 200)
    assert.equal((await shop.hub.call(LATEST, { bearer: shop.token })).status, 401)
  })

  for (const [method, path, json] of [
    ['GET', LATEST, undefined],
    ['GET', '/v1/projects/shop/artifacts/1.0.0', undefined],
    ['POST', '/v1/deployments/report', REPORT],
  ] as const) {
    it(`is required for ${method} ${path}, and is valid for its project only`, async t => {
      const { hub } = await runShopHub(t)
      const other = await logIn(hub, newValue(hub, 'devkey', 'other'), 'other')
      const call = (headers: Record<string, string>) => hub.call(path, { method, headers, ...(json && { json }) })
      for (const authorization of ['', 'Bearer ', 'Bearer unknown', `Token ${other}`, `Bearer ${other} x`]) {
        const response = await call({ authorization })
        assert.equal(response.status, 401, authorization)
        assert.ok(await errorOf(response))
      }
      const foreign = await call({ authorization: `Bearer ${other}` })
      assert.equal(foreign.status, 403)
      assert.ok(await errorOf(foreign))
    })
  }

  it('is required for POST /v1/deployments/authorize', async t => {
    const shop = await runShopHub(t)
    assert.equal((await authorize({ ...shop, token: 'unknown' })).status, 401)
    assert.equal((await authorize({ ...shop, token: shop.credential })).status, 401)
  })
})
