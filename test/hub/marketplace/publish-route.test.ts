import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join, resolve } from 'node:path'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { listKeys, revokeKey } from '../../../hub/access.ts'
import { holdVersion, listCatalogue, yankVersion } from '../../../hub/marketplace/catalogue.ts'
import { signArchive } from '../../../hub/marketplace/publish.ts'
import { buildZip, file, symlink } from '../../archives/zip-builder.ts'
import { HANG_LIMIT_MS } from '../../extent.ts'
import { ADMIN, PUBLISH as PUBLISH_PROJECT } from '../project/project-client.ts'
import { ADMIN_TOKEN, errorOf, type HubUnderTest, newFolder, runHub, SIGNING_SECRET } from '../running-hub.ts'

const HELLO = { kind: 'plugin', slug: 'hello' } as const
const PUBLISH = '/plugins/hello/publish'
const ZIP = pluginZip('1.0.0')
const OTHER_ZIP = pluginZip('1.0.0', 'print(2)')
const SERVICE_ZIP = buildZip([file('run.sh')])
const GIB = 1024 ** 3

describe('POST /plugins/{slug}/publish', () => {
  for (const mount of ['', '/app/marketplace']) {
    it(`publishes a ZIP of more than 1 MiB under ${mount || 'the root'}, which hosts get unchanged and signed`, async t => {
      const hub = await runHub(t)
      const zip = pluginZip('1.0.0', randomBytes(2 * 1024 * 1024))
      const response = await send(hub, { path: `${mount}${PUBLISH}?version=1.0.0&repo=me/hello@v1.0.0`, zip })
      assert.equal(response.status, 201, await response.clone().text())
      assert.deepEqual(await response.json(), { ...HELLO, version: '1.0.0', sha256: sha256Of(zip) })
      const served = await hub.call('/plugins/hello/install', { key: hub.newKey() })
      assert.deepEqual(Buffer.from(await served.arrayBuffer()), zip)
      const { headers } = served
      assert.deepEqual(
        [headers.get('x-signature'), headers.get('x-repo')],
        [signArchive(zip, SIGNING_SECRET), 'me/hello@v1.0.0'],
      )
    })
  }

  it('takes the version from plugin.yaml, and the slug from its own path', async t => {
    const hub = await runHub(t)
    const response = await send(hub, { path: '/plugins/greeter/publish', zip: pluginZip('2.1.0') })
    const { slug, version } = (await response.json()) as Record<string, string>
    assert.deepEqual([response.status, slug, version], [201, 'greeter', '2.1.0'])
  })

  it('answers 200 to the same bytes, and 409 to other bytes or another signature', async t => {
    const hub = await runHub(t)
    const [first, again] = [await send(hub), await send(hub)]
    assert.deepEqual([first.status, again.status], [201, 200])
    assert.deepEqual(await again.json(), await first.json())
    for (const other of [{ zip: OTHER_ZIP }, { headers: { 'X-Signature': signArchive(ZIP, 'another secret') } }]) {
      const response = await send(hub, other)
      assert.equal(response.status, 409)
      assert.match(await errorOf(response), /^Version 1\.0\.0 of the plugin hello is already published with /)
    }
    assert.equal((await send(hub)).status, 200)
    assertKept(hub, [ZIP])
  })

  it('replaces a version for the admin token, but not one that was yanked', async t => {
    const hub = await runHub(t)
    await send(hub)
    const replace = { path: `${PUBLISH}?replace=true`, zip: OTHER_ZIP }
    assert.deepEqual([(await send(hub, replace)).status, (await send(hub, replace)).status], [201, 200])
    const served = await hub.call('/plugins/hello/install', { key: hub.newKey() })
    assert.deepEqual(Buffer.from(await served.arrayBuffer()), OTHER_ZIP)
    holdVersion(hub.store, { ...HELLO, version: '1.0.0' })
    assert.equal((await send(hub, { ...replace, zip: ZIP })).status, 201)
    assert.notEqual(listCatalogue(hub.store)[0]?.versions[0]?.held_at, null)
    yankVersion(hub.store, { ...HELLO, version: '1.0.0' })
    for (const path of [PUBLISH, `${PUBLISH}?replace=true`]) {
      const response = await send(hub, { path })
      assert.equal(response.status, 409)
      assert.match(await errorOf(response), /permanently yanked/)
    }
  })

  it('publishes exactly one of two ZIPs that are sent for one version at once, and keeps nothing of the other', async t => {
    const hub = await runHub(t)
    const answers = await Promise.all([send(hub), send(hub, { zip: OTHER_ZIP })])
    assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 409])
    assertKept(hub, [answers[0]?.status === 201 ? ZIP : OTHER_ZIP])
  })

  it('answers 413 to a ZIP above the limit, with and without an announced length', async t => {
    const zip = pluginZip('1.0.0', randomBytes(200_000))
    const hub = await runHub(t, { maxArtifactBytes: zip.length - 1 })
    for (const isChunked of [false, true]) {
      const response = await send(hub, { zip, isChunked })
      assert.equal(response.status, 413)
      assert.match(await errorOf(response), /larger than the limit/)
      assertKept(hub, [])
    }
    assert.equal(await statusOfAnnounced(hub, { ...headersOf(ZIP), 'Content-Length': String(GIB) }), 413)
    const roomy = await runHub(t, { maxArtifactBytes: zip.length })
    assert.equal((await send(roomy, { zip, isChunked: true })).status, 201)
  })

  it('answers 415 to any other content type', async t => {
    const hub = await runHub(t)
    for (const type of ['application/json', 'application/octet-stream', 'multipart/form-data; boundary=x', '']) {
      const response = await send(hub, { headers: { 'Content-Type': type } })
      assert.equal(response.status, 415, type)
      assert.ok(await errorOf(response))
    }
    assertKept(hub, [])
  })
})

describe('POST /services/{slug}/publish', () => {
  for (const mount of ['', '/app/xservices']) {
    it(`publishes a service under ${mount || 'the root'} if its version is given`, async t => {
      const hub = await runHub(t)
      const path = `${mount}/services/clock/publish`
      const missing = await send(hub, { path, zip: SERVICE_ZIP })
      assert.equal(missing.status, 422)
      assert.match(await errorOf(missing), /^A service has no file that gives its version/)
      const response = await send(hub, { path: `${path}?version=1.0.0`, zip: SERVICE_ZIP })
      assert.equal(response.status, 201)
      const published = { kind: 'service', slug: 'clock', version: '1.0.0', sha256: sha256Of(SERVICE_ZIP) }
      assert.deepEqual(await response.json(), published)
    })
  }
})

describe('an upload that cannot be published', () => {
  for (const [name, change, message] of [
    ['no signature', { headers: { 'X-Signature': '' } }, /^signature: is missing/],
    ['a bare digest as its signature', { headers: { 'X-Signature': sha256Of(ZIP) } }, /^signature: /],
    ['a signature of another kind', { headers: { 'X-Signature': `hmac_sha512:${'a'.repeat(64)}` } }, /^signature: /],
    ['two signatures', { headers: { 'X-Signature': `${signArchive(ZIP, 'a')}, ${signArchive(ZIP, 'b')}` } }, /^sign/],
    ['a slug that leads out', { path: '/plugins/..%2f..%2fhello/publish' }, /^slug: must be 1 to 128/],
    ['a slug with a NUL', { path: '/plugins/hello%00/publish' }, /^slug: /],
    ['a slug with a line break', { path: '/plugins/hello%0d%0aX-Injected:%20yes/publish' }, /^slug: /],
    ['a slug in capitals', { path: '/plugins/Hello/publish' }, /^slug: /],
    ['a slug that is not UTF-8', { path: '/plugins/%ff/publish' }, /^slug: /],
    ['a version that leads out', { path: `${PUBLISH}?version=../1.0.0` }, /^version: must be 1 to 128/],
    ['a version with a line break', { path: `${PUBLISH}?version=1.0.0%0d%0aX-Injected:%20yes` }, /^version/],
    ['the version latest', { path: `${PUBLISH}?version=latest` }, /must not be "latest"/],
    ['two versions', { path: `${PUBLISH}?version=1.0.0&version=1.0.1` }, /^version: /],
    ['an unknown parameter', { path: `${PUBLISH}?replaced=true` }, /replaced/],
    ['a parameter for the path', { path: `${PUBLISH}?slug=other` }, /slug/],
    ['an unclear flag', { path: `${PUBLISH}?replace=yes` }, /must be true or false/],
    ['a repo of two lines', { path: `${PUBLISH}?repo=a/b@c%0aX:%20y` }, /owner\/repo@tag/],
    ['another version than its plugin.yaml', { path: `${PUBLISH}?version=1.0.1` }, /^The version in plugin\.yaml is 1/],
    ['no plugin.yaml', { zip: SERVICE_ZIP }, /^The archive has no plugin\.yaml/],
    ['a plugin.yaml, for a service', { path: '/services/hello/publish?version=1.0.0' }, /so it is a plugin/],
    ['nothing', { zip: Buffer.alloc(0) }, /is empty/],
    ['no ZIP', { zip: Buffer.from('any bytes') }, /cannot be read as a ZIP/],
    ['half of a ZIP', { zip: ZIP.subarray(0, ZIP.length / 2) }, /cannot be read as a ZIP/],
    ['a name that leads out', { zip: pluginZip('1.0.0', 'x', '../evil') }, /\.\.\/evil/],
    ['a symlink that leads out', { zip: buildZip([yamlOf('1.0.0'), symlink('a', '/etc/passwd')]) }, /"a"/],
    ['a ZIP bomb that declares its size', { zip: bomb({ size: 3 * GIB }) }, /unpacks to more than/],
    ['a ZIP bomb that hides its size', { zip: bomb({ size: 10 }) }, /cannot be read as a ZIP|damaged/],
  ] as [string, Sending, RegExp][]) {
    it(`is refused, and leaves nothing behind: ${name}`, async t => {
      const hub = await runHub(t)
      const response = await send(hub, change)
      assert.equal(response.headers.get('x-injected'), null)
      const error = await errorOf(response)
      assert.match(error, message)
      assert.equal(response.status, 422, error)
      assertKept(hub, [])
    })
  }
})

it('does not read a huge plugin.yaml into memory', async t => {
  const zip = buildZip([file('plugin.yaml', Buffer.alloc(100_000_000))])
  const program = `import { readFileSync } from 'node:fs'
import { requireDeployable } from ${JSON.stringify(resolve(import.meta.dirname, '../../../hub/marketplace/publish.ts'))}
const refused = await requireDeployable(readFileSync(process.argv[1]), { source: 'a', slug: 'a' }).catch(error => error)
// Unlike maxRSS, this does not begin with the size of the parent.
const [, peak] = /^VmHWM:\\s+(\\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))
console.log(JSON.stringify([refused.message, Number(peak)]))`
  const path = join(newFolder(t), 'a.zip')
  writeFileSync(path, zip)
  const printed = execFileSync(process.execPath, ['--input-type=module', '-e', program, path], { encoding: 'utf8' })
  const [message, peakKib] = JSON.parse(printed)
  assert.match(message, /^plugin\.yaml has 100000000 bytes/)
  assert.ok(peakKib < 250_000, `${peakKib} KiB`)
})

describe('an upload with a wrong path, query or header', () => {
  for (const [path, headers] of [
    ['/plugins/Hello/publish', {}],
    [`${PUBLISH}?version=latest`, {}],
    [PUBLISH, { 'X-Signature': 'none' }],
  ] as const)
    it(`is refused before its body is read: ${path} ${JSON.stringify(headers)}`, async t => {
      const announced = { ...headersOf(ZIP), ...headers, 'Content-Length': '1000000' }
      assert.equal(await statusOfAnnounced(await runHub(t), announced, path), 422)
    })
})

describe('a publish key', () => {
  it('publishes new versions of its plugin, and gets 409 for other bytes', async t => {
    const hub = await runHub(t)
    const headers = bearer(publishKey(hub))
    assert.equal((await send(hub, { headers })).status, 201)
    assert.equal((await send(hub, { headers })).status, 200)
    assert.equal((await send(hub, { headers, zip: pluginZip('1.1.0') })).status, 201)
    assert.equal((await send(hub, { headers, zip: OTHER_ZIP })).status, 409)
  })

  for (const [name, status, change] of [
    ['no credential', 401, () => ({ headers: { Authorization: '' } })],
    ['an unknown token', 401, () => ({ headers: bearer('publish_unknown') })],
    ['the admin token as a password', 401, () => ({ headers: basic(ADMIN_TOKEN) })],
    ['a publish key as a password', 401, hub => ({ headers: basic(publishKey(hub)) })],
    ['a publish key in X-API-Key', 401, hub => ({ headers: { Authorization: '', 'X-API-Key': publishKey(hub) } })],
    ['an API key', 403, hub => ({ headers: bearer(hub.newKey()) })],
    ["the plugin's own API key", 403, hub => ({ headers: bearer(hub.newKey(HELLO)) })],
    ["another plugin's publish key", 403, hub => ({ headers: bearer(publishKey(hub, { slug: 'hell' })) })],
    ["a service's publish key", 403, hub => ({ headers: bearer(publishKey(hub, { kind: 'service' })) })],
    ['a key that is bound by another case', 403, hub => ({ path: '/plugins/Hello/publish', headers: own(hub) })],
    [
      'a key that is bound to a part of the path',
      403,
      hub => ({ path: '/plugins/hello%2f/publish', headers: own(hub) }),
    ],
    ['the right to replace', 403, hub => ({ path: `${PUBLISH}?replace=true`, headers: own(hub) })],
    [
      'the right to replace, given twice',
      403,
      hub => ({ path: `${PUBLISH}?replace=false&replace=true`, headers: own(hub) }),
    ],
  ] as [string, number, (hub: HubUnderTest) => Sending][]) {
    it(`is needed: ${status} for ${name}, before the body is read`, async t => {
      const hub = await runHub(t)
      const response = await send(hub, change(hub))
      assert.equal(response.status, status)
      assert.ok(await errorOf(response))
      assertKept(hub, [])
      const { path, headers } = change(hub)
      const announced = { ...headersOf(ZIP), ...headers, 'Content-Length': '1000000' }
      assert.equal(await statusOfAnnounced(hub, announced, path), status)
    })
  }

  for (const [method, path, withKey, withBearer] of [
    ['GET', '/plugins/hello/install', 403, 401],
    ['HEAD', '/plugins/hello/install', 403, 401],
    ['GET', '/app/marketplace/plugins/hello/install', 403, 401],
    ['GET', '/plugins/hidden', 404, 404],
    ['GET', '/deployments', 403, 401],
    ['GET', '/deployments/plugin/hello/hosts', 403, 401],
    ['POST', '/deployments/report', 403, 401],
    ['POST', '/devkeys/api-keys', 401, 401],
    ['POST', '/v1/auth', 401, 401],
    ['GET', '/v1/projects/shop/versions/latest', 401, 401],
    ['POST', PUBLISH_PROJECT, 401, 401],
    ['POST', '/v1/projects', 401, 401],
    ['POST', '/v1/projects/shop/devkeys', 401, 401],
    ['DELETE', '/v1/projects/shop/versions/1.0.0', 401, 401],
    ['DELETE', '/v1/projects/shop/keys', 401, 401],
  ] as const) {
    it(`can do nothing else: it is refused for ${method} ${path}`, async t => {
      const hub = await runHub(t)
      await send(hub)
      await hub.publish({ slug: 'hidden', isPrivate: true })
      const [key, hidden] = [publishKey(hub), publishKey(hub, { slug: 'hidden' })]
      const report = { ...HELLO, version: '1.0.0', status: 'success', started_at: NOW, completed_at: NOW, host_id: 'a' }
      const body = method === 'POST' ? { json: { ...report, xdevkey: key, project_id: 'shop', name: 'a' } } : {}
      for (const value of [key, hidden]) {
        assert.equal((await hub.call(path, { method, key: value, ...body })).status, withKey)
        assert.equal((await hub.call(path, { method, bearer: value, ...body })).status, withBearer)
      }
    })
  }

  it('does not open the page of a hub behind a proxy', async t => {
    const hub = await runHub(t, { behindProxy: true })
    assert.equal((await hub.call('/', { headers: basic(publishKey(hub)) })).status, 401)
  })

  it('is refused if it is revoked, even while its file arrives', async t => {
    const hub = await runHub(t)
    const headers = { ...headersOf(ZIP), ...own(hub), 'Content-Length': String(ZIP.length) }
    const sent = request(hub.url + PUBLISH, { method: 'POST', headers, agent: false })
    sent.write(ZIP.subarray(0, 10))
    await uploading(hub, 1)
    for (const { id } of listKeys(hub.store)) revokeKey(hub.store, id)
    sent.end(ZIP.subarray(10))
    const [response] = await once(sent, 'response')
    assert.equal(response.resume().statusCode, 401)
    assertKept(hub, [])
  })

  it('must be bound to one plugin or service', async t => {
    const hub = await runHub(t)
    const asked = (json: object) => hub.call('/devkeys/api-keys', { bearer: ADMIN_TOKEN, json })
    assert.equal((await asked({ name: 'ci', can_publish: true })).status, 400)
    const issued = await asked({ name: 'ci', can_publish: true, ...HELLO })
    const { key } = (await issued.json()) as { key: string }
    assert.match(key, /^publish_/)
    assert.equal((await send(hub, { headers: bearer(key) })).status, 201)
  })
})

describe('an upload of a ZIP', { timeout: HANG_LIMIT_MS }, () => {
  it('that its sender ends halfway leaves nothing behind', async t => {
    for (const length of [{ 'Content-Length': String(ZIP.length) }, { 'Transfer-Encoding': 'chunked' }]) {
      const ended = Promise.withResolvers<void>()
      const hub = await runHub(t, { log: () => ended.resolve() })
      const headers = { ...headersOf(ZIP), ...length }
      const sent = request(hub.url + PUBLISH, { method: 'POST', headers, agent: false })
      sent.on('error', () => {}).write(ZIP.subarray(0, 10))
      await uploading(hub, 1)
      sent.destroy()
      await ended.promise
      assertKept(hub, [])
    }
  })

  it('that stops is ended after its second minute, and leaves nothing behind', async t => {
    const ended = Promise.withResolvers<void>()
    let minute = () => {}
    const everyMinute = (work: () => void) => {
      minute = work
      return () => {}
    }
    const hub = await runHub(t, { everyMinute, log: () => ended.resolve() })
    const headers = { ...headersOf(ZIP), 'Transfer-Encoding': 'chunked' }
    const sent = request(hub.url + PUBLISH, { method: 'POST', headers, agent: false })
    sent.write(ZIP.subarray(0, 10))
    await uploading(hub, 1)
    minute()
    minute()
    const [response] = await once(sent, 'response')
    assert.equal(response.statusCode, 408)
    await ended.promise
    assertKept(hub, [])
  })

  it('is answered with 507 when the disk would keep less than the reserve for reports', async t => {
    const hub = await runHub(t, { reserveBytes: 2 ** 60 })
    assert.equal((await send(hub)).status, 507)
    assertKept(hub, [])
  })

  it('is answered with 503 while two others arrive, a sealed project among them', async t => {
    const hub = await runHub(t)
    const others = [
      [PUBLISH, headersOf(ZIP)],
      [PUBLISH_PROJECT, { ...ADMIN, 'Content-Type': 'application/octet-stream' }],
    ].map(([path, headers]) => {
      const options = { method: 'POST', headers: { ...(headers as object), 'Content-Length': '1000' }, agent: false }
      return request(`${hub.url}${path}`, options)
    })
    for (const other of others) other.on('error', () => {}).write('x')
    await uploading(hub, 2)
    const response = await send(hub)
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '60'])
    for (const other of others) other.destroy()
    await uploading(hub, 0)
    assert.equal((await send(hub)).status, 201)
  })
})

const NOW = '2026-01-02T03:04:05.000Z'

interface Sending {
  readonly path?: string
  readonly zip?: Buffer
  readonly headers?: Record<string, string>
  readonly isChunked?: boolean
}

/** Sends a ZIP with the admin token, unless the headers replace it. Leaves out empty headers. */
function send({ url }: HubUnderTest, { path = PUBLISH, zip = ZIP, headers, isChunked }: Sending = {}) {
  const all = Object.entries({ ...headersOf(zip), ...headers }).filter(([, value]) => value !== '')
  const body = isChunked
    ? { body: new Blob([new Uint8Array(zip)]).stream(), duplex: 'half' }
    : { body: new Uint8Array(zip) }
  return fetch(url + path, { method: 'POST', headers: Object.fromEntries(all), ...body } as RequestInit)
}

function headersOf(zip: Buffer): Record<string, string> {
  return { ...ADMIN, 'Content-Type': 'application/zip', 'X-Signature': signArchive(zip, SIGNING_SECRET) }
}

function publishKey({ newKey }: HubUnderTest, listing: object = {}): string {
  return newKey({ ...HELLO, ...listing, can_publish: true })
}

function own(hub: HubUnderTest): Record<string, string> {
  return bearer(publishKey(hub))
}

function bearer(token: string): Record<string, string> {
  return { Authorization: `Bearer ${token}` }
}

function basic(password: string): Record<string, string> {
  return { Authorization: `Basic ${Buffer.from(`admin:${password}`).toString('base64')}` }
}

function yamlOf(version: string) {
  return file('plugin.yaml', `name: hello\nversion: ${version}\n`)
}

function pluginZip(version: string, data: Buffer | string = 'print(1)', name = 'main.py'): Buffer {
  return buildZip([yamlOf(version), file(name, data)])
}

/** Ten MiB of zeros, which the headers call `size` bytes. */
function bomb({ size }: { readonly size: number }): Buffer {
  return buildZip([yamlOf('1.0.0'), { ...file('zeros', Buffer.alloc(10 * 1024 * 1024)), both: { size } }])
}

function sha256Of(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** Waits until this many uploads arrive. */
async function uploading({ dataDir }: HubUnderTest, count: number): Promise<void> {
  const uploads = join(dataDir, 'uploads')
  while ((existsSync(uploads) ? readdirSync(uploads) : []).length !== count) await setImmediate()
}

function assertKept({ store, dataDir }: HubUnderTest, zips: readonly Buffer[]): void {
  const versions = listCatalogue(store).flatMap(listing => listing.versions)
  assert.deepEqual(
    versions.map(({ sha256 }) => sha256),
    zips.map(sha256Of),
  )
  assert.deepEqual(readdirSync(join(dataDir, 'artifacts')).sort(), zips.map(sha256Of).sort())
  const uploads = join(dataDir, 'uploads')
  assert.deepEqual(existsSync(uploads) ? readdirSync(uploads) : [], [])
}

/** The status of the answer to a request that announces a body and does not send it. */
function statusOfAnnounced({ url }: HubUnderTest, headers: object, path = PUBLISH): Promise<number | undefined> {
  const all = Object.entries(headers).filter(([, value]) => value !== '')
  return new Promise((resolve, reject) => {
    const options = { method: 'POST', headers: Object.fromEntries(all), agent: false }
    const sent = request(url + path, options, response => {
      resolve(response.statusCode)
      sent.destroy()
    })
    sent.on('error', reject)
    sent.flushHeaders()
  })
}
