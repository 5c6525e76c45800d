import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, watch } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { listProjects } from '../../../../hub/project/catalogue.ts'
import { listProjectKeys, revokeProjectKey } from '../../../../hub/project/keys.ts'
import { ADMIN_TOKEN, errorOf, type HubUnderTest, runHub } from '../../running-hub.ts'
import { ADMIN, logIn, newValue, PUBLISH, runShopHub, type Sender, sendForm, sendRaw } from '../project-client.ts'
import { publishShop, sealShop } from '../project-source.ts'

const SENDS = { 'a form': sendForm, 'the bare file': sendRaw } as const

for (const [what, send] of Object.entries(SENDS)) {
  describe(`POST /v1/projects/{id}/publish with ${what}`, () => {
    it('publishes a file, even one above the limit for JSON', async t => {
      const hub = await runHub(t)
      const sealed = await sealShop(t, {}, { 'plugins/cart/data': randomBytes(2 * 1024 * 1024).toString('base64') })
      const response = await send(hub, sealed)
      assert.equal(response.status, 201, await response.clone().text())
      const published = (await response.json()) as Record<string, unknown>
      const sha256 = String(published['content_sha256'])
      const created_at = listProjects(hub.store)[0]?.versions[0]?.published_at
      assert.deepEqual(published, {
        artifact_id: sha256,
        project_id: 'shop',
        version: '1.0.0',
        content_sha256: sha256,
        size_bytes: sealed.bytes.length,
        created_at,
      })
      assert.deepEqual(readFileSync(join(hub.dataDir, 'artifacts', sha256)), sealed.bytes)
    })

    it('gives the same answer to the same file, and 409 to other bytes for its version', async t => {
      const hub = await runHub(t)
      const sealed = await sealShop(t)
      const [first, again] = [await send(hub, sealed), await send(hub, sealed)]
      assert.deepEqual([first.status, again.status], [201, 201])
      assert.deepEqual(await again.json(), await first.json())
      const other = await send(hub, await sealShop(t))
      assert.equal(other.status, 409)
      assert.match(await errorOf(other), /1\.0\.0/)
      assert.equal(listProjects(hub.store)[0]?.versions.length, 1)
      assert.deepEqual(readdirSync(join(hub.dataDir, 'artifacts')).length, 1)
    })

    it('answers 413 to a file above the limit, and keeps nothing of it', async t => {
      const sealed = await sealShop(t, {}, { 'plugins/cart/data': randomBytes(200_000).toString('base64') })
      for (const maxArtifactBytes of [sealed.bytes.length - 1, 1000]) {
        const hub = await runHub(t, { maxArtifactBytes })
        const response = await send(hub, sealed)
        assert.equal(response.status, 413)
        assert.ok(await errorOf(response))
        assertNothingKept(hub)
      }
      assert.equal((await send(await runHub(t, { maxArtifactBytes: sealed.bytes.length }), sealed)).status, 201)
    })
  })
}

describe('a credential that may publish', () => {
  it('is a dev key that was created for it, in X-API-Key, which can also log in', async t => {
    const hub = await runHub(t)
    const value = newValue(hub, 'publisher')
    assert.equal((await sendForm(hub, await sealShop(t), { sender: { 'X-API-Key': value } })).status, 201)
    assert.match(await logIn(hub, value), /^access_/)
  })

  for (const [name, status, sender] of [
    ['a missing credential', 401, () => ({})],
    ['a wrong admin token', 401, () => ({ Authorization: 'Bearer wrong-token' })],
    [
      'the admin token as a password, which a browser sends for other sites too',
      401,
      () => ({ Authorization: `Basic ${Buffer.from(`admin:${ADMIN_TOKEN}`).toString('base64')}` }),
    ],
    ['an unknown dev key', 401, () => ({ 'X-API-Key': 'devkey_unknown' })],
    ['an empty dev key next to the admin token', 401, () => ({ ...ADMIN, 'X-API-Key': '' })],
    ['a dev key for logging in', 403, hub => ({ 'X-API-Key': newValue(hub, 'devkey') })],
    ['a deployment credential', 401, hub => ({ 'X-API-Key': newValue(hub, 'credential') })],
    ["another project's dev key", 403, hub => ({ 'X-API-Key': newValue(hub, 'publisher', 'other') })],
    ['an API key of the marketplace', 401, hub => ({ 'X-API-Key': hub.newKey() })],
  ] as [string, number, (hub: HubUnderTest) => Sender][]) {
    it(`is not ${name}`, async t => {
      const hub = await runHub(t)
      const response = await sendForm(hub, await sealShop(t), { sender: sender(hub) })
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
      assertNothingKept(hub)
    })
  }

  it('is named to a sender without a key: a dev key for publishing, or the admin token', async t => {
    const hub = await runHub(t)
    const response = await sendForm(hub, await sealShop(t), { sender: {} })
    assert.match(await errorOf(response), /"project devkey --publish" in the X-API-Key header, or the admin token/)
  })

  it('is neither an access token nor a revoked dev key', async t => {
    const { hub, token } = await runShopHub(t)
    const sealed = await sealShop(t, { version: '2.0.0' })
    assert.equal((await sendForm(hub, sealed, { sender: { Authorization: `Bearer ${token}` } })).status, 401)
    const value = newValue(hub, 'publisher')
    for (const { id } of listProjectKeys(hub.store)) revokeProjectKey(hub.store, id)
    assert.equal((await sendForm(hub, sealed, { sender: { 'X-API-Key': value } })).status, 401)
  })

  it('is refused if it is revoked while the file arrives', async t => {
    const hub = await runHub(t)
    const { bytes, release } = await sealShop(t)
    const headers = {
      'X-API-Key': newValue(hub, 'publisher'),
      'Content-Type': 'application/octet-stream',
      'Content-Length': String(bytes.length),
      'X-Version': release.version,
      'X-Artifact-Signature': release.signature,
      'X-Signer-Public-Key': release.signer_public_key,
      'X-Dek': release.dek,
    }
    const sent = request(hub.url + PUBLISH, { method: 'POST', headers, agent: false })
    sent.write(bytes.subarray(0, 10))
    const uploads = join(hub.dataDir, 'uploads')
    while (!existsSync(uploads) || readdirSync(uploads).length < 1) await setImmediate()
    for (const { id } of listProjectKeys(hub.store)) revokeProjectKey(hub.store, id)
    sent.end(bytes.subarray(10))
    const [response] = await once(sent, 'response')
    assert.equal(response.resume().statusCode, 401)
    assertNothingKept(hub)
  })

  it('is checked before the body is read', async t => {
    const hub = await runHub(t)
    const length = { 'Content-Length': '1000000' }
    assert.equal(await statusOfAnnounced(hub, { 'X-API-Key': newValue(hub, 'devkey'), ...length }), 403)
    assert.equal(await statusOfAnnounced(hub, length), 401)
  })
})

describe('an upload form', () => {
  for (const [name, change, field] of [
    ['without a version', { version: undefined }, 'version'],
    ['without a key', { dek: undefined }, 'dek'],
    ['without a file', { artifact: undefined }, 'artifact'],
    ['with a wrong signature', { signature: randomBytes(64).toString('base64') }, 'signature'],
    ['with a malformed digest', { content_sha256: 'x' }, 'content_sha256'],
    ['with a name of two lines', { project_name: 'a\nb' }, 'project_name'],
    ['with a field of 5 KB', { version: '1'.repeat(5_000) }, 'version'],
    ['with a field in place of the file', { artifact: 'text' }, 'signature'],
    ['with too many fields', Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`x${i}`, '1'])), 'The'],
  ] as const) {
    it(`${name} is refused with 400 and the field`, async t => {
      const hub = await runHub(t)
      const response = await sendForm(hub, await sealShop(t), { change })
      assert.equal(response.status, 400)
      assert.match(await errorOf(response), new RegExp(`^${field}`))
      assertNothingKept(hub)
    })
  }

  it('without the optional fields is accepted', async t => {
    const hub = await runHub(t)
    const change = { project_name: undefined, content_sha256: undefined }
    assert.equal((await sendForm(hub, await sealShop(t), { change })).status, 201)
  })

  for (const [name, contentType, status] of [
    ['that is sent as JSON', 'application/json', 415],
    ['that is sent without a type', '', 415],
    ['without a boundary', 'multipart/form-data', 415],
    ['with another boundary', 'multipart/form-data; boundary=x', 400],
    ['that is URL-encoded', 'application/x-www-form-urlencoded', 415],
  ] as const) {
    it(`${name} is answered with ${status}`, async t => {
      const hub = await runHub(t)
      const response = await sendRaw(hub, await sealShop(t), { 'Content-Type': contentType })
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
    })
  }

  it('that is aborted by its sender leaves nothing behind', async t => {
    const ended = Promise.withResolvers<void>()
    const hub = await runHub(t, { log: () => ended.resolve() })
    const headers = { ...ADMIN, 'Content-Type': 'multipart/form-data; boundary=x', 'Content-Length': '1000000' }
    const sent = request(hub.url + PUBLISH, { method: 'POST', headers, agent: false })
    sent.on('error', () => {})
    const head = '--x\r\nContent-Disposition: form-data; name="artifact"; filename="a"\r\n\r\n'
    const begun = Promise.withResolvers<void>()
    const watcher = watch(hub.dataDir, (_, name) => name === 'uploads' && begun.resolve())
    t.after(() => watcher.close())
    sent.write(head + 'x'.repeat(300_000))
    await begun.promise
    sent.destroy()
    await ended.promise
    assertNothingKept(hub)
  })

  it('that is cut off leaves nothing behind', async t => {
    const hub = await runHub(t)
    const body = '--x\r\nContent-Disposition: form-data; name="artifact"; filename="a"\r\n\r\ndata'
    const headers = { ...ADMIN, 'Content-Type': 'multipart/form-data; boundary=x' }
    const response = await hub.call(PUBLISH, { body, headers })
    assert.equal(response.status, 400)
    assertNothingKept(hub)
  })
})

describe('the bare file', () => {
  for (const [name, status, headers] of [
    ['no version', 400, { 'X-Version': '' }],
    ['no key', 400, { 'X-Dek': '' }],
    ['a wrong signature', 400, { 'X-Artifact-Signature': randomBytes(64).toString('base64') }],
  ] as const) {
    it(`is answered with ${status} if it has ${name}`, async t => {
      const hub = await runHub(t)
      const response = await sendRaw(hub, await sealShop(t), headers)
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
      assertNothingKept(hub)
    })
  }

  it('is refused by its announced length, before the body is read', async t => {
    const hub = await runHub(t)
    const headers = { ...ADMIN, 'Content-Type': 'application/octet-stream' }
    assert.equal(await statusOfAnnounced(hub, { ...headers, 'Content-Length': String(513 * 1024 * 1024) }), 413)
  })
})

describe('an upload', () => {
  it('is answered with 507 when the disk would keep less than the reserve for reports', async t => {
    const hub = await runHub(t, { reserveBytes: 2 ** 60 })
    const response = await sendRaw(hub, await sealShop(t))
    assert.equal(response.status, 507)
    assert.match(await errorOf(response), /bytes free/)
    assertNothingKept(hub)
  })

  it('is answered with 507 as soon as other processes have filled the disk, before the rest of it arrives', async t => {
    let looks = 0
    const hub = await runHub(t, { freeBytes: async () => (looks++ === 0 ? Number.MAX_SAFE_INTEGER : 0) })
    const headers = { ...ADMIN, 'Content-Type': 'application/octet-stream', 'Content-Length': '100000000' }
    const sent = request(hub.url + PUBLISH, { method: 'POST', headers, agent: false })
    // The hub ends the connection while the rest of the body is missing.
    sent.on('error', () => {}).write(randomBytes(9 * 1024 * 1024))
    const [response] = await once(sent, 'response')
    assert.deepEqual([response.statusCode, looks], [507, 2])
    sent.destroy()
    assertNothingKept(hub)
  })

  it('is answered with 507 when the disk has no room for a second copy, which becomes the artifact', async t => {
    const sealed = await sealShop(t)
    const free = [Number.MAX_SAFE_INTEGER, sealed.bytes.length + 999]
    const hub = await runHub(t, { reserveBytes: 1000, freeBytes: async () => free.shift() ?? 0 })
    assert.equal((await sendRaw(hub, sealed)).status, 507)
    assertNothingKept(hub)
  })

  it('is answered with 503 while two others arrive, and accepted after them', async t => {
    const hub = await runHub(t)
    const sealed = await sealShop(t)
    const headers = { ...ADMIN, 'Content-Type': 'application/octet-stream', 'Content-Length': '1000' }
    const others = [0, 1].map(() => request(hub.url + PUBLISH, { method: 'POST', headers, agent: false }))
    for (const other of others) other.on('error', () => {}).write('x')
    const uploads = join(hub.dataDir, 'uploads')
    while (!existsSync(uploads) || readdirSync(uploads).length < 2) await setImmediate()
    const response = await sendRaw(hub, sealed)
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '60'])
    for (const other of others) other.destroy()
    while (readdirSync(uploads).length > 0) await setImmediate()
    assert.equal((await sendRaw(hub, sealed)).status, 201)
  })
})

it('publishes exactly one of two different files that are sent for one version at once', async t => {
  const hub = await runHub(t)
  const answers = await Promise.all([sendForm(hub, await sealShop(t)), sendRaw(hub, await sealShop(t))])
  assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 409])
  await publishShop(t, hub.store, '1.1.0')
  assert.equal(listProjects(hub.store)[0]?.versions.length, 2)
})

function assertNothingKept(hub: HubUnderTest): void {
  assert.deepEqual(listProjects(hub.store), [])
  assert.deepEqual(readdirSync(join(hub.dataDir, 'artifacts')), [])
  const uploads = join(hub.dataDir, 'uploads')
  assert.deepEqual(existsSync(uploads) ? readdirSync(uploads) : [], [])
}

function statusOfAnnounced({ url }: HubUnderTest, headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const sent = request(url + PUBLISH, { method: 'POST', headers, agent: false }, response => {
      resolve(response.statusCode)
      sent.destroy()
    })
    sent.on('error', reject)
    sent.flushHeaders()
  })
}
