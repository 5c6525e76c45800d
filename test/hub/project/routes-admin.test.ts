import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { listProjectKeys } from '../../../hub/project/keys.ts'
import { ADMIN_TOKEN, errorOf, type HubUnderTest, runHub } from '../running-hub.ts'
import { authorize, logIn, newValue, runShopHub } from './project-client.ts'

const SHOP = '/v1/projects/shop'

describe('the administration of projects', () => {
  for (const [segment, field, pattern] of [
    ['devkeys', 'xdevkey', /^devkey_[\w-]{43}$/],
    ['deployment-credentials', 'deployment_credential', /^deploy_[\w-]{43}$/],
  ] as const) {
    it(`answers with the value under ${segment}`, async t => {
      const hub = await runHub(t)
      const issued = await issue(hub, segment)
      assert.match(String(issued[field]), pattern)
      assert.equal(issued['project_id'], 'shop')
      assert.equal(JSON.stringify(listProjectKeys(hub.store)).includes(String(issued[field])), false)
    })
  }

  it('creates a project with an id that every client accepts', async t => {
    const hub = await runHub(t)
    const response = await hub.call('/v1/projects', { bearer: ADMIN_TOKEN, json: { name: 'The shop' } })
    assert.equal(response.status, 201)
    const { project_id, name } = (await response.json()) as Record<string, unknown>
    assert.match(String(project_id), /^prj_[A-Za-z0-9]{10,40}$/)
    assert.equal(name, 'The shop')
  })

  it('creates a dev key that can publish only when asked to', async t => {
    const hub = await runHub(t)
    for (const [can_publish, purpose] of [
      [undefined, 'devkey'],
      [false, 'devkey'],
      [true, 'publisher'],
    ] as const) {
      const json = { name: 'ci', can_publish }
      const response = await hub.call(`${SHOP}/devkeys`, { bearer: ADMIN_TOKEN, json })
      assert.equal(((await response.json()) as { purpose: string }).purpose, purpose)
    }
    const json = { name: 'ci', can_publish: 'yes' }
    assert.equal((await hub.call(`${SHOP}/devkeys`, { bearer: ADMIN_TOKEN, json })).status, 400)
  })

  it('creates working keys and revokes them one at a time', async t => {
    const shop = await runShopHub(t)
    const devkey = await issue(shop.hub, 'devkeys')
    const issued = await issue(shop.hub, 'deployment-credentials')
    const token = await logIn(shop.hub, String(devkey['xdevkey']))
    const mine = { ...shop, token, credential: String(issued['deployment_credential']) }
    assert.equal((await authorize(mine)).status, 200)
    assert.equal((await remove(shop.hub, `${SHOP}/keys/${issued['id']}`)).status, 204)
    assert.equal((await authorize(mine)).status, 403)
    assert.equal((await authorize({ ...mine, credential: shop.credential })).status, 200)
  })

  it('revokes a version', async t => {
    const shop = await runShopHub(t)
    assert.equal((await remove(shop.hub, `${SHOP}/versions/1.0.0`)).status, 204)
    assert.equal((await authorize(shop)).status, 403)
  })

  it('revokes all keys of one project and of no other', async t => {
    const { hub } = await runShopHub(t)
    const other = newValue(hub, 'devkey', 'other')
    const response = await remove(hub, `${SHOP}/keys`)
    assert.equal(((await response.json()) as { revoked: string[] }).revoked.length, 2)
    assert.ok(await logIn(hub, other, 'other'))
  })

  for (const path of [`${SHOP}/keys/unknown`, `${SHOP}/versions/9.9.9`]) {
    it(`answers 404 to DELETE ${path}`, async t => {
      const { hub } = await runShopHub(t)
      const response = await remove(hub, path)
      assert.equal(response.status, 404)
      assert.ok(await errorOf(response))
    })
  }

  it("answers 404 to the revocation of another project's key", async t => {
    const { hub } = await runShopHub(t)
    const id = listProjectKeys(hub.store)[0]?.id
    assert.equal((await remove(hub, `/v1/projects/other/keys/${id}`)).status, 404)
    assert.ok(listProjectKeys(hub.store).every(({ is_active }) => is_active))
  })

  for (const [name, path, json] of [
    ['a project id that is too long', `/v1/projects/${'x'.repeat(129)}/devkeys`, { name: 'ci' }],
    ['a missing name', `${SHOP}/devkeys`, {}],
    ['a name of two lines', `${SHOP}/devkeys`, { name: 'a\nb' }],
  ] as const) {
    it(`answers 400 to ${name}`, async t => {
      const hub = await runHub(t)
      assert.equal((await hub.call(path, { bearer: ADMIN_TOKEN, json })).status, 400)
    })
  }

  for (const [method, path] of [
    ['POST', '/v1/projects'],
    ['POST', `${SHOP}/publish`],
    ['POST', `${SHOP}/devkeys`],
    ['POST', `${SHOP}/deployment-credentials`],
    ['DELETE', `${SHOP}/keys`],
    ['DELETE', `${SHOP}/keys/some`],
    ['DELETE', `${SHOP}/versions/1.0.0`],
  ] as const) {
    it(`needs the admin token for ${method} ${path}`, async t => {
      const shop = await runShopHub(t)
      for (const bearer of [undefined, 'wrong-token-of-the-tests', shop.token]) {
        const response = await shop.hub.call(path, { method, ...(bearer === undefined ? {} : { bearer }) })
        assert.equal(response.status, 401)
        assert.ok(await errorOf(response))
      }
      assert.equal((await authorize(shop)).status, 200)
    })
  }
})

async function issue(hub: HubUnderTest, segment: string): Promise<Record<string, unknown>> {
  const response = await hub.call(`${SHOP}/${segment}`, { bearer: ADMIN_TOKEN, json: { name: 'ci' } })
  assert.equal(response.status, 201)
  return (await response.json()) as Record<string, unknown>
}

function remove(hub: HubUnderTest, path: string): Promise<Response> {
  return hub.call(path, { method: 'DELETE', bearer: ADMIN_TOKEN })
}
