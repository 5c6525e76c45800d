import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { authorize, logIn, newValue, REPORT, runShopHub } from './project/project-client.ts'
import { ADMIN_TOKEN, errorOf, runHub } from './running-hub.ts'

const REPORT_BODY = {
  kind: 'plugin',
  slug: 'hello',
  version: '1.0.0',
  status: 'success',
  started_at: '2026-01-02T03:04:05Z',
  completed_at: '2026-01-02T03:04:06Z',
  host_id: 'host-1',
}

describe('the mounts', () => {
  it('serve plugins and services with the same answers as the root', async t => {
    const hub = await runHub(t)
    const key = hub.newKey()
    await hub.publish()
    await hub.publish({ kind: 'service', slug: 'clock' })
    for (const [mount, path] of [
      ['/app/marketplace', '/plugins/hello'],
      ['/app/marketplace', '/plugins/hello/install?version=latest'],
      ['/app/xservices', '/services/clock'],
      ['/app/xservices', '/services/clock/install'],
    ] as const) {
      const answers = await Promise.all([path, mount + path].map(at => hub.call(at, { key })))
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200],
      )
      const [root, mounted] = await Promise.all(answers.map(answer => answer.text()))
      assert.equal(mounted, root)
    }
  })

  it('accept a report and list the hosts', async t => {
    const hub = await runHub(t)
    const key = hub.newKey()
    const response = await hub.call('/app/xdeployments/deployments/report', { key, json: REPORT_BODY })
    assert.equal(response.status, 201)
    const hosts = await hub.call('/app/xdeployments/deployments/plugin/hello/hosts', { key })
    assert.deepEqual(
      ((await hosts.json()) as { host_id: string }[]).map(({ host_id }) => host_id),
      ['host-1'],
    )
  })

  it('issue a key to the administrator', async t => {
    const hub = await runHub(t)
    const asked = { json: { name: 'ci' }, bearer: ADMIN_TOKEN }
    const issued = await hub.call('/app/xdevkeys/devkeys/api-keys', asked)
    assert.equal(issued.status, 201)
    const { key } = (await issued.json()) as { key: string }
    assert.equal((await hub.call('/deployments', { key })).status, 200)
  })

  it('serve a project from the login to the report', async t => {
    const shop = await runShopHub(t)
    const { hub, sealed } = shop
    const at = '/app/xdeploy/v1'
    const json = { xdevkey: newValue(hub, 'devkey'), project_id: 'shop' }
    const { access_token: bearer } = (await (await hub.call(`${at}/auth`, { json })).json()) as { access_token: string }
    const latest = await hub.call(`${at}/projects/shop/versions/latest`, { bearer })
    assert.deepEqual(await latest.json(), { version: '1.0.0' })
    const descriptor = await hub.call(`${at}/projects/shop/artifacts/1.0.0`, { bearer })
    const { download_url } = (await descriptor.json()) as { download_url: string }
    assert.ok(download_url.startsWith(`${hub.url}${at}/downloads/`), download_url)
    assert.deepEqual(Buffer.from(await (await fetch(download_url)).arrayBuffer()), sealed.bytes)
    const wanted = { deployment_credential: shop.credential, artifact_signature: sealed.release.signature }
    const released = await hub.call(`${at}/deployments/authorize`, { bearer, json: wanted })
    assert.deepEqual(await released.json(), { dek: sealed.release.dek })
    assert.equal((await hub.call(`${at}/deployments/report`, { bearer, json: REPORT })).status, 201)
  })

  it('share the data of the root', async t => {
    const shop = await runShopHub(t)
    assert.equal((await authorize({ ...shop, token: await logIn(shop.hub, newValue(shop.hub, 'devkey')) })).status, 200)
    const { hub, token } = shop
    assert.equal((await hub.call('/app/xdeploy/v1/projects/shop/versions/latest', { bearer: token })).status, 200)
  })

  for (const [method, path, status] of [
    ['GET', '/app/marketplace/services/hello', 404],
    ['GET', '/app/xservices/plugins/hello', 404],
    ['POST', '/app/marketplace/deployments/report', 404],
    ['POST', '/app/marketplace/devkeys/api-keys', 404],
    ['POST', '/app/xdeploy/deployments/report', 404],
    ['GET', '/app', 404],
    ['GET', '/app/xdeploy/v1/auth', 405],
    ['GET', '/app/xdeployments/deployments/report', 405],
    ['POST', '/app/xdeployments/deployments/report', 401],
    ['GET', '/app/marketplace/plugins/hello/install', 401],
    ['DELETE', '/app/xdeploy/v1/projects/shop/keys', 401],
  ] as const) {
    it(`answer ${status} to ${method} ${path}`, async t => {
      const hub = await runHub(t)
      const response = await hub.call(path, { method })
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
    })
  }

  it('limit a body as the root does', async t => {
    const hub = await runHub(t)
    for (const path of ['/app/xdeploy/v1/auth', '/app/xdeployments/deployments/report']) {
      const response = await hub.call(path, { key: hub.newKey(), body: 'x'.repeat(1024 * 1024 + 1) })
      assert.equal(response.status, 413)
    }
  })
})
