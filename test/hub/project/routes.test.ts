import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { revokeProjectVersion } from '../../../hub/project/catalogue.ts'
import { listProjectKeys, revokeProject, revokeProjectKey } from '../../../hub/project/project-keys.ts'
import { listDeployments } from '../../../hub/project/reports.ts'
import { errorOf, runHub } from '../running-hub.ts'
import { authorize, logIn, newValue, REPORT, report, runShopHub } from './project-client.ts'
import { publishShop, sealShop } from './project-source.ts'

const LATEST = '/v1/projects/shop/versions/latest'
const DESCRIPTOR = '/v1/projects/shop/artifacts/1.0.0'
const UNKNOWN_SIGNATURE = randomBytes(64).toString('base64')

describe('GET /v1/projects/{id}/versions/latest', () => {
  for (const [published, latest] of [
    [['1.9.0', '1.10.0', '1.2.0'], '1.10.0'],
    [['1.0.1', '2.0.0-beta.1'], '1.0.1'],
    [['1.0.1-beta.2', '1.0.1-beta.10'], '1.0.0'],
  ] as const) {
    it(`is ${latest} of 1.0.0, ${published.join(', ')}`, async t => {
      const { hub, token } = await runShopHub(t)
      for (const version of published) await publishShop(t, hub.store, version)
      assert.deepEqual(await (await hub.call(LATEST, { bearer: token })).json(), { version: latest })
    })
  }

  it('skips revoked versions, and answers 404 when none is left', async t => {
    const { hub, token } = await runShopHub(t)
    await publishShop(t, hub.store, '1.1.0')
    revokeProjectVersion(hub.store, { project_id: 'shop', version: '1.1.0' })
    assert.deepEqual(await (await hub.call(LATEST, { bearer: token })).json(), { version: '1.0.0' })
    revokeProjectVersion(hub.store, { project_id: 'shop', version: '1.0.0' })
    const response = await hub.call(LATEST, { bearer: token })
    assert.equal(response.status, 404)
    assert.ok(await errorOf(response))
  })

  it('answers 404 for a project without a version', async t => {
    const hub = await runHub(t)
    const token = await logIn(hub, newValue(hub, 'devkey'))
    assert.equal((await hub.call(LATEST, { bearer: token })).status, 404)
  })
})

describe('GET /v1/projects/{id}/artifacts/{version}', () => {
  it('answers with the URL and the signature of the bytes', async t => {
    const { hub, token, sealed } = await runShopHub(t)
    const response = await hub.call(DESCRIPTOR, { bearer: token })
    assert.equal(response.status, 200)
    assert.deepEqual(await response.json(), {
      download_url: `${hub.url}${DESCRIPTOR}/download`,
      signature: sealed.release.signature,
      signer_public_key: sealed.release.signer_public_key,
    })
  })

  it('leads to the sealed bytes, or for HEAD to their length', async t => {
    const { hub, token, sealed } = await runShopHub(t)
    const response = await hub.call(`${DESCRIPTOR}/download`, { bearer: token })
    assert.equal(response.status, 200)
    assert.equal(response.headers.get('content-length'), String(sealed.bytes.length))
    assert.deepEqual(Buffer.from(await response.arrayBuffer()), sealed.bytes)
    const head = await hub.call(`${DESCRIPTOR}/download`, { bearer: token, method: 'HEAD' })
    assert.equal(head.headers.get('content-length'), String(sealed.bytes.length))
  })

  it('uses the host name of the request in the URL', async t => {
    const { hub, token } = await runShopHub(t)
    const descriptor = JSON.parse(await getUnderName(`${hub.url}${DESCRIPTOR}`, 'hub.example', token))
    assert.equal(descriptor.download_url, `http://hub.example${DESCRIPTOR}/download`)
  })

  for (const version of ['2.0.0', 'latest', '..%2f1.0.0', "1'--"]) {
    it(`answers 404 for the version ${version}`, async t => {
      const { hub, token } = await runShopHub(t)
      for (const path of ['', '/download']) {
        const response = await hub.call(`/v1/projects/shop/artifacts/${version}${path}`, { bearer: token })
        assert.equal(response.status, 404)
        assert.ok(await errorOf(response))
      }
    })
  }

  it("answers 500 when the hub's file is incomplete", async t => {
    const { hub, token } = await runShopHub(t)
    const [file = ''] = readdirSync(join(hub.dataDir, 'artifacts'))
    writeFileSync(join(hub.dataDir, 'artifacts', file), 'cut')
    const response = await hub.call(`${DESCRIPTOR}/download`, { bearer: token })
    assert.equal(response.status, 500)
  })
})

describe('POST /v1/deployments/authorize', () => {
  it('releases the key of the version with the signature', async t => {
    const shop = await runShopHub(t)
    const newer = await publishShop(t, shop.hub.store, '1.1.0')
    assert.deepEqual(await (await authorize(shop)).json(), { dek: shop.sealed.release.dek })
    assert.deepEqual(await (await authorize({ ...shop, sealed: newer })).json(), { dek: newer.release.dek })
  })

  for (const [name, status, change] of [
    ['an unknown credential', 403, { deployment_credential: 'deploy_unknown' }],
    ['a signature that no version has', 404, { artifact_signature: UNKNOWN_SIGNATURE }],
    ['no credential', 400, { deployment_credential: undefined }],
    ['an empty credential', 400, { deployment_credential: '' }],
    ['no signature', 400, { artifact_signature: undefined }],
    ['a signature in hex', 400, { artifact_signature: randomBytes(64).toString('hex') }],
    ['a signature of 63 bytes', 400, { artifact_signature: randomBytes(63).toString('base64') }],
  ] as const) {
    it(`answers ${status} to ${name}`, async t => {
      const response = await authorize(await runShopHub(t), change)
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
    })
  }

  it('answers 403 to the credential of another project', async t => {
    const shop = await runShopHub(t)
    assert.equal((await authorize({ ...shop, credential: newValue(shop.hub, 'credential', 'other') })).status, 403)
  })

  it('answers 403 to a dev key', async t => {
    const shop = await runShopHub(t)
    assert.equal((await authorize({ ...shop, credential: newValue(shop.hub, 'devkey') })).status, 403)
  })

  it('never releases the key of another project with the same version', async t => {
    const shop = await runShopHub(t)
    const token = await logIn(shop.hub, newValue(shop.hub, 'devkey', 'other'), 'other')
    const credential = newValue(shop.hub, 'credential', 'other')
    assert.equal((await authorize({ ...shop, token, credential })).status, 404)
  })

  it('answers 403 as soon as the credential is revoked, and to no other', async t => {
    const shop = await runShopHub(t)
    const other = newValue(shop.hub, 'credential')
    const [, credential] = listProjectKeys(shop.hub.store).filter(({ purpose }) => purpose === 'credential')
    assert.equal((await authorize({ ...shop, credential: other })).status, 200)
    revokeProjectKey(shop.hub.store, credential?.id ?? '')
    const statuses = await Promise.all([shop.credential, other].map(value => authorize({ ...shop, credential: value })))
    assert.deepEqual(statuses.map(({ status }) => status).sort(), [200, 403])
  })

  it('answers 403, with the version, after its revocation', async t => {
    const shop = await runShopHub(t)
    revokeProjectVersion(shop.hub.store, { project_id: 'shop', version: '1.0.0' })
    const response = await authorize(shop)
    assert.equal(response.status, 403)
    assert.match(await errorOf(response), /1\.0\.0/)
  })

  it('releases nothing after the whole project is revoked, until it gets new keys', async t => {
    const shop = await runShopHub(t)
    assert.equal(revokeProject(shop.hub.store, 'shop').length, 2)
    assert.equal((await authorize(shop)).status, 401)
    const token = await logIn(shop.hub, newValue(shop.hub, 'devkey'))
    assert.equal((await authorize({ ...shop, token })).status, 403)
    assert.equal((await authorize({ ...shop, token, credential: newValue(shop.hub, 'credential') })).status, 200)
  })
})

describe('POST /v1/deployments/report', () => {
  it('answers 201 with the id of the deployment', async t => {
    const shop = await runShopHub(t)
    const response = await report(shop)
    assert.equal(response.status, 201)
    assert.deepEqual(await response.json(), { deployment_id: REPORT.deployment_id })
    const [{ reported_at: _, ...stored } = { reported_at: '' }] = listDeployments(shop.hub.store, 10)
    assert.deepEqual(stored, REPORT)
  })

  it('keeps one row for each deployment, with the last report', async t => {
    const shop = await runShopHub(t)
    await report(shop)
    assert.equal((await report(shop, { status: 'rolled_back' })).status, 201)
    assert.deepEqual(
      listDeployments(shop.hub.store, 10).map(({ status }) => status),
      ['rolled_back'],
    )
  })

  it('never lets one project change the report of another', async t => {
    const shop = await runShopHub(t)
    await report(shop)
    const token = await logIn(shop.hub, newValue(shop.hub, 'devkey', 'other'), 'other')
    assert.equal((await report({ ...shop, token }, { project_id: 'other', status: 'failed' })).status, 201)
    assert.deepEqual(
      listDeployments(shop.hub.store, 10)
        .map(({ project_id, status }) => [project_id, status])
        .sort(),
      [
        ['other', 'failed'],
        ['shop', 'success'],
      ],
    )
  })

  for (const change of [
    { status: 'interrupted' },
    { status: undefined },
    { version: '../1' },
    { deployment_id: 'x' },
    { deployment_id: undefined },
    { started_at: 'yesterday' },
    { started_at: '2026-01-02T03:04:05+02:00' },
    { completed_at: 5 },
    { plugins: undefined },
    { plugins: {} },
    { plugins: [{ id: 'cart' }] },
    { plugins: [{ id: '../cart', version: '1' }] },
    { plugins: Array.from({ length: 1001 }, () => ({ id: 'cart', version: '1' })) },
  ]) {
    it(`answers 400, with the field, to ${JSON.stringify(change).slice(0, 60)}`, async t => {
      const response = await report(await runShopHub(t), change)
      assert.equal(response.status, 400)
      assert.match(await errorOf(response), new RegExp(`^${Object.keys(change)[0]}`))
    })
  }

  for (const [name, options, status] of [
    ['malformed JSON', { body: '{' }, 400],
    ['another content type', { body: 'x', headers: { 'Content-Type': 'text/plain' } }, 415],
    ['a body over 1 MiB', { body: 'x'.repeat(1024 * 1024 + 1) }, 413],
  ] as const) {
    it(`answers ${status} to ${name}`, async t => {
      const { hub, token } = await runShopHub(t)
      const response = await hub.call('/v1/deployments/report', { bearer: token, ...options })
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
    })
  }
})

describe('the fleet page', () => {
  it('shows projects, their versions and their deployments', async t => {
    const shop = await runShopHub(t)
    await publishShop(t, shop.hub.store, '1.1.0')
    revokeProjectVersion(shop.hub.store, { project_id: 'shop', version: '1.1.0' })
    await report(shop, { status: 'rolled_back' })
    const page = await (await shop.hub.call('/')).text()
    for (const text of ['shop', '1.1.0 (revoked)', 'cart@1.10', 'rolled back', '2026-01-02 03:04 UTC']) {
      assert.ok(page.includes(text), text)
    }
  })

  it('omits projects if there are none', async t => {
    const hub = await runHub(t)
    assert.equal((await (await hub.call('/')).text()).includes('Projects'), false)
  })
})

describe('a project that was sealed elsewhere', () => {
  it('is unknown before it is published', async t => {
    const shop = await runShopHub(t)
    assert.equal((await authorize({ ...shop, sealed: await sealShop(t) })).status, 404)
  })
})

function getUnderName(url: string, host: string, token: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { host, authorization: `Bearer ${token}` }
    const sent = request(url, { headers, agent: false }, async response => {
      resolve(Buffer.concat(await response.toArray()).toString())
    })
    sent.on('error', reject)
    sent.end()
  })
}
