import assert from 'node:assert/strict'
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { createProjectClient, type ProjectClient } from '../../src/project/hub.ts'
import { temporaryDirectory } from '../folders.ts'
import { NO_SECRETS } from '../install/prepared-host.ts'
import { CLOSED_PORT, serve, serveSocket } from '../net/loopback-server.ts'
import { createTestedWire } from '../net/tested-wire.ts'
import {
  type Answer,
  ARTIFACT,
  AUTHORIZE,
  clientOf,
  DEK,
  descriptorWith,
  LATEST,
  REPORT,
  type Routes,
  refusalOf,
  SENT_REPORT,
  SIGNATURE,
  TOKEN,
  withHub,
} from './stub-hub.ts'

const ONCE = { body: REPORT, retry: false, timeoutMs: 10_000 }
const RETRIED = { ...ONCE, retry: true }

describe('retries', () => {
  const flaky: Answer[] = [
    [503, {}],
    [429, {}],
  ]
  for (const [route, act] of [
    [LATEST, (client: ProjectClient) => client.readLatestVersion()],
    [ARTIFACT, (client: ProjectClient) => client.readDescriptor('1.0.0')],
  ] as const) {
    it(`repeats ${route} after 503 and 429`, async t => {
      const good: Answer = [200, route === LATEST ? { version: '1.0.0' } : descriptorWith({})]
      const { client, calls } = await withHub(t, { [route]: [...flaky, good] })
      await act(client)
      assert.equal(calls.filter(call => call.route === route).length, 3)
    })
  }

  for (const [route, act] of [
    ['POST /v1/auth', (client: ProjectClient) => client.authenticate()],
    [AUTHORIZE, (client: ProjectClient) => client.authorize('c', SIGNATURE)],
  ] as const) {
    it(`sends ${route} once, even if the hub answers 503`, async t => {
      const { client, calls } = await withHub(t, { [route]: [503, {}] })
      await refusalOf(() => act(client))
      assert.equal(calls.filter(call => call.route === route).length, 1)
    })
  }

  it('does not send the dev key again after the connection broke', async t => {
    const server = await serveSocket(t, socket => socket.once('data', () => socket.destroy()))
    assert.equal((await refusalOf(clientOf(server.url).authenticate)).code, 'network')
    assert.equal(server.connections(), 1)
  })

  it('tries to connect again when nothing listens', async () => {
    const wire = createTestedWire()
    const access = { hubUrl: `http://127.0.0.1:${CLOSED_PORT}`, projectId: 'shop', devkey: 'k', secrets: NO_SECRETS }
    const client = createProjectClient({ wire, reportWire: wire }, access)
    assert.equal((await refusalOf(client.authenticate)).code, 'network')
    assert.equal(wire.waits.length, 3)
  })
})

describe('a token that the hub no longer accepts', () => {
  const AUTH = 'POST /v1/auth'
  const DOWNLOAD = 'GET /download'
  const tokens: Answer[] = [
    [200, { access_token: 'the-old-access-token', expires_in: 0 }],
    [200, { access_token: 'the-new-access-token' }],
  ]
  const expired: Answer = [401, { error: 'expired' }]
  const calls = [
    [LATEST, [200, { version: '1.0.0' }], client => client.readLatestVersion()],
    [ARTIFACT, [200, descriptorWith({})], client => client.readDescriptor('1.0.0')],
    [DOWNLOAD, [200, 'sealed'], downloadFrom],
    [AUTHORIZE, [200, { dek: DEK.toString('base64') }], client => client.authorize('c', SIGNATURE)],
  ] satisfies [string, Answer, (client: ProjectClient, hub: string, t: TestContext) => Promise<unknown>][]
  for (const [route, good, act] of calls) {
    it(`is replaced once, and ${route} is sent again`, async t => {
      const { client, calls, server } = await withHub(t, { [AUTH]: tokens, [route]: [expired, good] })
      await client.authenticate()
      await act(client, server.url, t)
      assert.deepEqual(
        calls.map(call => [call.route, call.authorization]),
        [
          [AUTH, undefined],
          [route, 'Bearer the-old-access-token'],
          [AUTH, undefined],
          [route, 'Bearer the-new-access-token'],
        ],
      )
    })

    it(`is replaced only once for ${route}, whose second refusal is final`, async t => {
      const { client, calls, server } = await withHub(t, { [AUTH]: tokens, [route]: expired })
      await client.authenticate()
      await refusalOf(() => act(client, server.url, t))
      assert.deepEqual(
        calls.map(call => call.route),
        [AUTH, route, AUTH, route],
      )
    })
  }

  for (const lifetime of [{}, { expires_in: 3600 }, { expires_in: 'long' }]) {
    it(`is not replaced after a 401 to a credential while the token is new (${JSON.stringify(lifetime)})`, async t => {
      const issued: Answer = [200, { access_token: TOKEN, ...lifetime }]
      const { client, calls } = await withHub(t, {
        [AUTH]: issued,
        [AUTHORIZE]: [401, { error: 'no such credential' }],
      })
      await client.authenticate()
      const { code, message } = await refusalOf(() => client.authorize('c', SIGNATURE))
      assert.deepEqual([code, calls.map(call => call.route)], ['authentication_failed', [AUTH, AUTHORIZE]])
      assert.match(message, /no such credential/)
    })
  }

  it('is not replaced when another origin refuses a download', async t => {
    const storage = await serve(t, (_, response) => response.writeHead(401).end())
    const { client, calls, server } = await withHub(t)
    await client.authenticate()
    await refusalOf(() => downloadFrom(client, server.url, t, `${storage.url}/blob`))
    assert.deepEqual([calls.map(({ route }) => route), storage.requests.length], [[AUTH], 1])
  })
})

async function downloadFrom(client: ProjectClient, hub: string, t: TestContext, url = `${hub}/download`) {
  const path = join(temporaryDirectory(t), 'sealed')
  const fd = openSync(path, 'w+')
  t.after(() => closeSync(fd))
  const descriptor = { version: '1.0.0', downloadUrl: new URL(url), signature: SIGNATURE, signerPublicKey: '' }
  const limits = { fd, maxBytes: 100, isFixedMax: false, timeoutMs: 10_000, onProgress: () => {} }
  await client.downloadArtifact(descriptor, limits)
}

describe('sendReport', () => {
  const routesOf = (calls: { route: string }[]) => calls.map(({ route }) => route)

  it('authenticates first when there is no token', async t => {
    const { client, calls } = await withHub(t)
    await client.sendReport(ONCE)
    await client.sendReport(ONCE)
    assert.deepEqual(routesOf(calls), ['POST /v1/auth', SENT_REPORT, SENT_REPORT])
  })

  it('authenticates again when the token has expired, then repeats the report', async t => {
    const { client, calls } = await withHub(t, {
      'POST /v1/auth': [
        [200, { access_token: 'the-old-access-token' }],
        [200, { access_token: 'the-new-access-token' }],
      ],
      [SENT_REPORT]: [
        [401, { error: 'expired' }],
        [201, {}],
      ],
    })
    await client.authenticate()
    const { status, attempts } = await client.sendReport(ONCE)
    assert.deepEqual([status, attempts], [201, 2])
    assert.deepEqual(
      calls.map(call => [call.route, call.authorization]),
      [
        ['POST /v1/auth', undefined],
        [SENT_REPORT, 'Bearer the-old-access-token'],
        ['POST /v1/auth', undefined],
        [SENT_REPORT, 'Bearer the-new-access-token'],
      ],
    )
    assert.deepEqual(client.hidden, ['the-old-access-token', 'the-new-access-token'])
  })

  it('accepts 401 as the answer when the token is new', async t => {
    const { client, calls } = await withHub(t, { [SENT_REPORT]: [401, {}] })
    assert.equal((await client.sendReport(RETRIED)).status, 401)
    assert.deepEqual(routesOf(calls), ['POST /v1/auth', SENT_REPORT])
  })

  it('sends a report at most twice', async t => {
    const { client, calls } = await withHub(t, { [SENT_REPORT]: [401, {}] })
    await client.authenticate()
    assert.equal((await client.sendReport(RETRIED)).status, 401)
    assert.equal(calls.filter(({ route }) => route === SENT_REPORT).length, 2)
  })

  it("returns the report's 401 when the hub no longer accepts the dev key", async t => {
    const { client } = await withHub(t, {
      'POST /v1/auth': [
        [200, { access_token: TOKEN }],
        [403, { error: 'revoked' }],
      ],
      [SENT_REPORT]: [401, { error: 'expired' }],
    })
    await client.authenticate()
    const { status, body } = await client.sendReport(RETRIED)
    assert.deepEqual([status, body], [401, { error: 'expired' }])
  })

  it('retries after 503 only if asked to', async t => {
    const unsteady = (): Routes => ({
      [SENT_REPORT]: [
        [503, {}],
        [201, {}],
      ],
    })
    assert.equal((await (await withHub(t, unsteady())).client.sendReport(RETRIED)).status, 201)
    assert.equal((await (await withHub(t, unsteady())).client.sendReport(ONCE)).status, 503)
  })
})
