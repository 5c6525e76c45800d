import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { holdVersion, releaseVersion, yankVersion } from '../../../hub/marketplace/catalogue.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import { ADMIN_TOKEN, errorOf, runHub, SIGNING_SECRET } from '../running-hub.ts'

const HELLO = { kind: 'plugin', slug: 'hello' } as const

describe('the detail route', () => {
  for (const [kind, segment] of [
    ['plugin', 'plugins'],
    ['service', 'services'],
  ] as const) {
    it(`answers with the latest version of a ${kind}, without a key`, async t => {
      const hub = await runHub(t)
      await hub.publish({ kind, version: '1.9.0', name: 'Hello' })
      await hub.publish({ kind, version: '1.10.0' })
      const response = await hub.call(`/${segment}/hello`)
      const detail = (await response.json()) as Record<string, unknown> & { versions: { version: string }[] }
      assert.equal(response.status, 200)
      assert.deepEqual(
        { ...detail, versions: undefined, created_at: undefined },
        {
          kind,
          slug: 'hello',
          name: 'Hello',
          latest_version: '1.10.0',
          publish_status: 'published',
          private: false,
          created_at: undefined,
          versions: undefined,
        },
      )
      assert.deepEqual(
        detail.versions.map(({ version }) => version),
        ['1.10.0', '1.9.0'],
      )
    })
  }

  it('says since when a name exists, and whether a version of it is served', async t => {
    const hub = await runHub(t)
    await hub.publish()
    await hub.publish({ version: '2.0.0' })
    const detail = async () =>
      (await (await hub.call('/plugins/hello')).json()) as Record<string, unknown> & {
        versions: { published_at: string }[]
      }
    const [, first] = (await detail()).versions
    assert.equal((await detail())['created_at'], first?.published_at)
    holdVersion(hub.store, { ...HELLO, version: '2.0.0' })
    assert.equal((await detail())['publish_status'], 'published')
    yankVersion(hub.store, { ...HELLO, version: '1.0.0' })
    assert.equal((await detail())['publish_status'], 'held_back')
    yankVersion(hub.store, { ...HELLO, version: '2.0.0' })
    assert.equal((await detail())['publish_status'], 'yanked')
  })

  it('shows a private name only to its keys and the administrator', async t => {
    const hub = await runHub(t)
    await hub.publish({ isPrivate: true })
    await hub.publish({ version: '2.0.0' })
    const own = { key: hub.newKey({ kind: 'plugin', slug: 'hello' }) }
    const other = { key: hub.newKey({ kind: 'plugin', slug: 'other' }) }
    const statuses = async (path: string) =>
      Promise.all(
        [{}, other, { key: 'wrong' }, own, { key: hub.newKey() }, { bearer: ADMIN_TOKEN }].map(async who => {
          const response = await hub.call(path, who)
          return response.status === 200 ? ((await response.json()) as unknown[]) : response.status
        }),
      )
    const seen = (await statuses('/plugins/hello')).map(answer => (typeof answer === 'number' ? answer : 200))
    assert.deepEqual(seen, [404, 404, 404, 200, 200, 200])
    assert.deepEqual(
      (await statuses('/plugins')).map(answer => (answer as unknown[]).length),
      [0, 0, 0, 1, 1, 1],
    )
    assert.equal(await errorOf(await hub.call('/plugins/hello')), 'This hub has no plugin "hello".')
    assert.equal((await hub.call('/plugins/hello/install', own)).status, 200)
    await hub.publish({ version: '2.0.0', isPrivate: false })
    assert.equal((await hub.call('/plugins/hello')).status, 200)
  })

  it('distinguishes plugins from services with the same slug', async t => {
    const hub = await runHub(t)
    await hub.publish({ kind: 'plugin' })
    assert.equal((await hub.call('/services/hello')).status, 404)
  })

  it('answers without a latest version when all versions are yanked', async t => {
    const hub = await runHub(t)
    await hub.publish()
    yankVersion(hub.store, { ...HELLO, version: '1.0.0' })
    const detail = (await (await hub.call('/plugins/hello')).json()) as { latest_version: unknown }
    assert.equal(detail.latest_version, null)
  })

  it('lists a version that is held back, even as the latest', async t => {
    const hub = await runHub(t)
    await hub.publish()
    await hub.publish({ version: '2.0.0' })
    holdVersion(hub.store, { ...HELLO, version: '2.0.0' })
    const detail = (await (await hub.call('/plugins/hello')).json()) as { latest_version: unknown; versions: unknown[] }
    assert.equal(detail.latest_version, '2.0.0')
    assert.partialDeepStrictEqual(detail.versions, [{ version: '2.0.0', held_back: true }, { held_back: false }])
  })

  for (const path of [
    '/plugins/unknown',
    '/plugins/..%2Fhello',
    '/plugins/%2e%2e%2f%2e%2e%2fetc%2fpasswd',
    '/plugins/hello%00',
    '/plugins/%zz',
    '/plugins/hello/',
    '/plugins/constructor',
    '/themes/hello',
  ]) {
    it(`answers 404 to ${path}`, async t => {
      const hub = await runHub(t)
      await hub.publish()
      const response = await hub.call(path)
      assert.equal(response.status, 404)
      assert.ok(await errorOf(response))
    })
  }
})

describe('the install route', () => {
  for (const [kind, segment, header] of [
    ['plugin', 'plugins', 'x-plugin'],
    ['service', 'services', 'x-service'],
  ] as const) {
    it(`serves a ${kind}'s bytes with the signature that openssl computes`, async t => {
      const hub = await runHub(t)
      await hub.publish({ kind, repo: 'octo/hello@v1.0.0' })
      const response = await hub.call(`/${segment}/hello/install?version=1.0.0`, { key: hub.newKey() })
      const bytes = Buffer.from(await response.arrayBuffer())
      assert.equal(response.status, 200)
      assert.equal(response.headers.get('x-signature'), `hmac_sha256:${hmacByOpenssl(bytes, SIGNING_SECRET)}`)
      assert.equal(response.headers.get(header), 'hello@1.0.0')
      assert.equal(response.headers.get('x-repo'), 'octo/hello@v1.0.0')
      assert.equal(response.headers.get('content-type'), 'application/zip')
      assert.equal(response.headers.get('content-length'), String(bytes.length))
    })
  }

  it('omits X-Repo when the repository is unknown', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const response = await hub.call('/plugins/hello/install', { key: hub.newKey() })
    assert.equal(response.headers.get('x-repo'), null)
  })

  for (const [query, served] of [
    ['', '1.10.0'],
    ['?version=', '1.10.0'],
    ['?version=latest', '1.10.0'],
    ['?version=1.9.0', '1.9.0'],
    ['?version=2.0.0-rc.1', '2.0.0-rc.1'],
  ]) {
    it(`serves ${served} for "${query}"`, async t => {
      const hub = await runHub(t)
      for (const version of ['1.10.0', '1.9.0', '2.0.0-rc.1', '3.0.0']) await hub.publish({ version })
      yankVersion(hub.store, { ...HELLO, version: '3.0.0' })
      const response = await hub.call(`/plugins/hello/install${query}`, { key: hub.newKey() })
      assert.equal(response.headers.get('x-plugin'), `hello@${served}`)
    })
  }

  it('serves a version that is held back only after its release, and a yanked one never again', async t => {
    const hub = await runHub(t)
    for (const version of ['1.0.0', '2.0.0']) await hub.publish({ version })
    const key = hub.newKey()
    const served = async (version: string) =>
      (await hub.call(`/plugins/hello/install?version=${version}`, { key })).headers.get('x-plugin')
    const id = { ...HELLO, version: '2.0.0' }
    holdVersion(hub.store, id)
    assert.deepEqual([await served('latest'), await served('2.0.0')], ['hello@1.0.0', null])
    releaseVersion(hub.store, id)
    assert.deepEqual([await served('latest'), await served('2.0.0')], ['hello@2.0.0', 'hello@2.0.0'])
    yankVersion(hub.store, id)
    for (const change of [releaseVersion, holdVersion])
      assert.throws(() => change(hub.store, id), /2\.0\.0 .* is permanently yanked/)
    assert.deepEqual([await served('latest'), await served('2.0.0')], ['hello@1.0.0', null])
  })

  for (const [name, path] of [
    ['an unknown version', '/plugins/hello/install?version=9.9.9'],
    ['a yanked version', '/plugins/hello/install?version=3.0.0'],
    ['a version that is a path', '/plugins/hello/install?version=..%2F..%2Fhub.sqlite'],
    ['a version that is a pattern', '/plugins/hello/install?version=%25'],
    ['an unknown slug', '/plugins/unknown/install'],
    ['a slug that is a path', '/plugins/..%2F..%2Fhub.sqlite/install'],
  ] as const) {
    it(`answers 404 to ${name}`, async t => {
      const hub = await runHub(t)
      await hub.publish()
      await hub.publish({ version: '3.0.0' })
      yankVersion(hub.store, { ...HELLO, version: '3.0.0' })
      const response = await hub.call(path, { key: hub.newKey() })
      assert.equal(response.status, 404)
      assert.ok(await errorOf(response))
    })
  }

  it('answers HEAD with only the headers', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const key = hub.newKey()
    const head = await hub.call('/plugins/hello/install', { key, method: 'HEAD' })
    const get = await hub.call('/plugins/hello/install', { key })
    assert.equal((await head.arrayBuffer()).byteLength, 0)
    assert.equal(head.headers.get('x-signature'), get.headers.get('x-signature'))
    assert.equal(head.headers.get('content-length'), String((await get.arrayBuffer()).byteLength))
  })

  it('serves all bytes of an archive of several megabytes', async t => {
    const hub = await runHub(t)
    const bytes = Buffer.alloc(5_000_001, 'archive')
    await publishArchive(hub.store, bytes, { ...HELLO, version: '1.0.0', signingSecret: SIGNING_SECRET })
    const response = await hub.call('/plugins/hello/install', { key: hub.newKey() })
    assert.equal(sha256(Buffer.from(await response.arrayBuffer())), sha256(bytes))
  })

  it('answers 500 without internal details when the file is gone', async t => {
    const hub = await runHub(t)
    await hub.publish()
    rmSync(join(hub.dataDir, 'artifacts'), { recursive: true })
    const response = await hub.call('/plugins/hello/install', { key: hub.newKey() })
    assert.equal(response.status, 500)
    assert.doesNotMatch(await errorOf(response), /artifacts|sqlite|ENOENT|[0-9a-f]{64}/)
    assert.equal(hub.log.length, 1)
  })
})

function hmacByOpenssl(bytes: Buffer, secret: string): string | undefined {
  const output = execFileSync('openssl', ['dgst', '-sha256', '-hmac', secret], { input: bytes, encoding: 'utf8' })
  return /([0-9a-f]{64})\s*$/.exec(output)?.[1]
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

describe('the browse route', () => {
  it('finds plugins or services by the words in their slugs and names', async t => {
    const hub = await runHub(t)
    for (const [slug, name] of [
      ['till', 'Cash register'],
      ['cart', 'Shopping cart'],
      ['cash-book', undefined],
    ] as const)
      await hub.publish({ slug, name })
    await hub.publish({ kind: 'service', slug: 'cash-service' })
    const found = async (path: string) =>
      ((await (await hub.call(path)).json()) as { slug: string }[]).map(({ slug }) => slug)
    assert.deepEqual(await found('/plugins'), ['cart', 'cash-book', 'till'])
    assert.deepEqual(await found('/plugins?search=CASH'), ['cash-book', 'till'])
    assert.deepEqual(await found('/plugins?search=cash%20register'), ['till'])
    assert.deepEqual(await found('/services?search=cash'), ['cash-service'])
    assert.deepEqual(await found('/app/marketplace/plugins?search=%25'), [])
  })
})
