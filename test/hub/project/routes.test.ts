import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { revokeProjectVersion } from '../../../hub/project/catalogue.ts'
import { listProjectKeys, revokeProject, revokeProjectKey } from '../../../hub/project/keys.ts'
import { listDeployments } from '../../../hub/project/reports.ts'
import { errorOf, runHub } from '../running-hub.ts'
import { authorize, logIn, newValue, REPORT, report, runShopHub, type ShopHub } from './project-client.ts'
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
    const { download_url, ...signed } = (await response.json()) as Descriptor
    assert.match(download_url, new RegExp(`^${hub.url}/v1/downloads/download_[\\w-]{43}$`))
    const { signature, signer_public_key } = sealed.release
    assert.deepEqual(signed, { signature, signer_public_key })
  })

  it('uses the host name of the request in the URL', async t => {
    const { hub, token } = await runShopHub(t)
    const descriptor = JSON.parse(await getUnderName(`${hub.url}${DESCRIPTOR}`, 'hub.example', token))
    assert.match(descriptor.download_url, /^http:\/\/hub\.example\/v1\/downloads\//)
  })

  for (const version of ['2.0.0', 'latest', '..%2f1.0.0', "1'--"]) {
    it(`answers 404 for the version ${version}`, async t => {
      const { hub, token } = await runShopHub(t)
      const response = await hub.call(`/v1/projects/shop/artifacts/${version}`, { bearer: token })
      assert.equal(response.status, 404)
      assert.ok(await errorOf(response))
    })
  }
})

describe('the download_url', () => {
  it('leads to the sealed bytes, or for HEAD to their length, without any credential', async t => {
    const shop = await runShopHub(t)
    const path = await downloadPath(shop)
    const response = await shop.hub.call(path)
    assert.equal(response.status, 200)
    assert.equal(response.headers.get('content-length'), String(shop.sealed.bytes.length))
    assert.deepEqual(Buffer.from(await response.arrayBuffer()), shop.sealed.bytes)
    const head = await shop.hub.call(path, { method: 'HEAD' })
    assert.equal(head.headers.get('content-length'), String(shop.sealed.bytes.length))
  })

  it('leads to only one version, and differs for each request', async t => {
    const shop = await runShopHub(t)
    const newer = await publishShop(t, shop.hub.store, '1.1.0')
    const paths = [await downloadPath(shop), await downloadPath(shop), await downloadPath(shop, '1.1.0')]
    assert.equal(new Set(paths).size, 3)
    const bytes = await Promise.all(paths.map(async path => (await shop.hub.call(path)).arrayBuffer()))
    assert.deepEqual(
      bytes.map(served => Buffer.from(served)),
      [shop.sealed.bytes, shop.sealed.bytes, newer.bytes],
    )
  })

  it('expires after 15 minutes, for downloads that begin later', async t => {
    let now = Date.UTC(2026, 0, 2)
    const shop = await runShopHub(t, { now: () => now })
    const path = await downloadPath(shop)
    now += 15 * 60_000 - 1
    assert.equal((await shop.hub.call(path)).status, 200)
    now += 1
    const refused = await shop.hub.call(path)
    assert.equal(refused.status, 403)
    assert.match(await errorOf(refused), /again/)
  })

  it('is not in the database, and an expired one leaves no row', async t => {
    let now = Date.UTC(2026, 0, 2)
    const shop = await runShopHub(t, { now: () => now })
    const path = await downloadPath(shop)
    for (const file of ['hub.sqlite', 'hub.sqlite-wal']) {
      assert.equal(readFileSync(join(shop.hub.dataDir, file)).includes(path.split('/').at(-1) ?? path), false)
    }
    now += 20 * 60_000
    await downloadPath(shop)
    const [row] = shop.hub.store.db.prepare('SELECT count(*) AS rows FROM download_tickets').all()
    assert.equal(row?.['rows'], 1)
  })

  it('is refused as soon as the dev key that it was made for is revoked', async t => {
    const shop = await runShopHub(t)
    const path = await downloadPath(shop)
    revokeProject(shop.hub.store, 'shop')
    const refused = await shop.hub.call(path)
    assert.equal(refused.status, 403)
    assert.match(await errorOf(refused), /revoked/)
  })

  it('still serves a revoked version, of which only the key is withheld', async t => {
    const shop = await runShopHub(t)
    const path = await downloadPath(shop)
    revokeProjectVersion(shop.hub.store, { project_id: 'shop', version: '1.0.0' })
    assert.equal((await shop.hub.call(path)).status, 200)
    assert.equal((await authorize(shop)).status, 403)
  })

  for (const path of ['download_unknown', '..%2f', "x'--", `download_${'A'.repeat(43)}`, 'x'.repeat(5_000)]) {
    it(`answers 403 to ${path.slice(0, 60)}`, async t => {
      const { hub, token } = await runShopHub(t)
      const response = await hub.call(`/v1/downloads/${path}`, { bearer: token })
      assert.equal(response.status, 403)
      assert.ok(await errorOf(response))
    })
  }

  it('does not exist at a path that could be guessed', async t => {
    const { hub, token } = await runShopHub(t)
    assert.equal((await hub.call(`${DESCRIPTOR}/download`, { bearer: token })).status, 404)
    assert.equal((await hub.call('/v1/downloads/', { bearer: token })).status, 404)
  })

  it("answers 500 when the hub's file is incomplete", async t => {
    const shop = await runShopHub(t)
    const path = await downloadPath(shop)
    const [file = ''] = readdirSync(join(shop.hub.dataDir, 'artifacts'))
    writeFileSync(join(shop.hub.dataDir, 'artifacts', file), 'cut')
    assert.equal((await shop.hub.call(path)).status, 500)
    assert.equal(shop.hub.log.length, 1)
    assert.equal(shop.hub.log.join().includes(path), false, 'a valid download_url is in the log')
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
    ['a missing credential', 400, { deployment_credential: undefined }],
    ['an empty credential', 400, { deployment_credential: '' }],
    ['a missing signature', 400, { artifact_signature: undefined }],
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

  it('answers 403 as soon as the credential is revoked, and to no other credential', async t => {
    const shop = await runShopHub(t)
    const other = newValue(shop.hub, 'credential')
    const [, credential] = listProjectKeys(shop.hub.store).filter(({ purpose }) => purpose === 'credential')
    assert.equal((await authorize({ ...shop, credential: other })).status, 200)
    revokeProjectKey(shop.hub.store, credential?.id ?? '')
    const statuses = await Promise.all([shop.credential, other].map(value => authorize({ ...shop, credential: value })))
    assert.deepEqual(statuses.map(({ status }) => status).sort(), [200, 403])
  })

  it('answers 403, and names the version, once the version is revoked', async t => {
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

  it("completes a report without an id and times with a new id and the hub's time", async t => {
    const now = Date.UTC(2026, 4, 6, 7, 8, 9)
    const shop = await runShopHub(t, { now: () => now })
    const ids = []
    for (let i = 0; i < 2; i++) {
      const response = await report(shop, { deployment_id: '', started_at: '', completed_at: '' })
      assert.equal(response.status, 201)
      ids.push(((await response.json()) as { deployment_id: string }).deployment_id)
    }
    const stored = listDeployments(shop.hub.store, 10)
    assert.deepEqual(stored.map(row => row.deployment_id).sort(), ids.sort())
    assert.equal(new Set(ids).size, 2)
    for (const { started_at, completed_at } of stored) {
      assert.deepEqual([started_at, completed_at], Array(2).fill('2026-05-06T07:08:09.000Z'))
    }
    assert.ok((await (await shop.hub.call('/')).text()).includes('2026-05-06 07:08:09 UTC'))
  })

  it('uses the only time in a report for both times', async t => {
    const shop = await runShopHub(t)
    await report(shop, { started_at: '' })
    const [{ started_at } = { started_at: '' }] = listDeployments(shop.hub.store, 10)
    assert.equal(started_at, REPORT.completed_at)
  })

  it('shows a plugin without a version by its id alone', async t => {
    const shop = await runShopHub(t)
    const plugins = [{ id: 'cart', version: '', sha256: 'ignored' }]
    assert.equal((await report(shop, { plugins })).status, 201)
    assert.ok((await (await shop.hub.call('/')).text()).includes('<td class="runs versions">cart</td>'))
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
    ['a different content type', { body: 'x', headers: { 'Content-Type': 'text/plain' } }, 415],
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
    for (const text of ['shop', '1.1.0 (revoked)', 'cart 1.10', 'rolled back', '2026-01-02 03:04:']) {
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

interface Descriptor {
  download_url: string
}

async function downloadPath({ hub, token }: ShopHub, version = '1.0.0'): Promise<string> {
  const response = await hub.call(`/v1/projects/shop/artifacts/${version}`, { bearer: token })
  return new URL(((await response.json()) as Descriptor).download_url).pathname
}

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
