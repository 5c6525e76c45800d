import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it, type TestContext } from 'node:test'
import {
  ArtifactError,
  AuthenticationError,
  ConfigError,
  type DeployError,
  DeploymentError,
} from '../../src/core/errors.ts'
import {
  type ArtifactDescriptor,
  buildProjectReportBody,
  createProjectClient,
  createProjectSender,
  type ProjectClient,
  resolveDownloadUrl,
} from '../../src/project/hub.ts'
import { NO_SECRETS, reportOf } from '../install/prepared-host.ts'
import { CLOSED_PORT, makeCertificate, serve, serveTls } from '../net/loopback-server.ts'
import { createTestedWire, openPrivateFile } from '../net/tested-wire.ts'
import {
  type Answer,
  ARTIFACT,
  AUTHORIZE,
  answering,
  clientOf,
  DEK,
  descriptorWith,
  LATEST,
  REPORT,
  type Routes,
  refusalOf,
  SENT_REPORT,
  SIGNATURE,
  serveHub,
  TOKEN,
  withHub,
} from './stub-hub.ts'

const BEARER = `Bearer ${TOKEN}`

function download(t: TestContext, client: ProjectClient, descriptor: ArtifactDescriptor) {
  const { fd } = openPrivateFile(t)
  return client.downloadArtifact(descriptor, {
    fd,
    maxBytes: 1024,
    isFixedMax: false,
    timeoutMs: 20_000,
    onProgress: () => {},
  })
}

describe('ProjectClient', () => {
  it('makes the calls of the contract, with the token in all but the first (contract 4.2, 5.2)', async t => {
    const { client, calls } = await withHub(t)
    await client.authenticate()
    assert.equal(await client.readLatestVersion(), '1.0.0')
    const descriptor = await client.readDescriptor('1.0.0')
    const artifact = await download(t, client, descriptor)
    assert.deepEqual([artifact.size, artifact.sha256], [6, hash('sha256', 'sealed')])
    assert.deepEqual(await client.authorize('the credential', descriptor.signature), DEK)
    assert.equal((await client.sendReport({ body: REPORT, retry: false, timeoutMs: 10_000 })).status, 201)
    assert.deepEqual(calls, [
      { route: 'POST /v1/auth', authorization: undefined, body: { xdevkey: 'the devkey', project_id: 'shop' } },
      { route: LATEST, authorization: BEARER, body: undefined },
      { route: ARTIFACT, authorization: BEARER, body: undefined },
      { route: 'GET /download', authorization: BEARER, body: undefined },
      {
        route: AUTHORIZE,
        authorization: BEARER,
        body: { deployment_credential: 'the credential', artifact_signature: SIGNATURE },
      },
      { route: SENT_REPORT, authorization: BEARER, body: REPORT },
    ])
  })

  it('keeps the path of hub-url', async t => {
    const { handler, calls } = answering({
      'POST /base/hub/v1/auth': [200, { access_token: TOKEN }],
      'GET /base/hub/v1/projects/shop/versions/latest': [200, { version: '3.0.0' }],
    })
    const { url } = await serve(t, handler)
    assert.equal(await clientOf(`${url}/base/hub/`).readLatestVersion(), '3.0.0')
    assert.equal(calls.length, 2)
  })

  it('hides tokens and keys as soon as it knows them', async t => {
    const { client } = await withHub(t)
    await client.authorize('the credential', SIGNATURE)
    assert.deepEqual(client.hidden, [TOKEN, DEK.toString('base64')])
  })

  for (const [name, dek, hidden] of [
    ['with too few bytes', Buffer.alloc(16, 9).toString('base64'), Buffer.alloc(16, 9).toString('base64')],
    ['in another encoding', DEK.toString('hex'), DEK.toString('hex')],
    ['with a line break', `${DEK.toString('base64')}\n`, DEK.toString('base64')],
    ['that could be an ordinary word', 'installed', undefined],
    ['that could be an ordinary sentence', 'The version was rolled back.', undefined],
  ] as const)
    it(`${hidden === undefined ? 'does not hide' : 'hides'} a refused key ${name}`, async t => {
      const { client } = await withHub(t, { [AUTHORIZE]: [200, { dek }] })
      assert.equal((await refusalOf(() => client.authorize('the credential', SIGNATURE))).code, 'decryption_failed')
      assert.deepEqual(client.hidden, hidden === undefined ? [TOKEN] : [TOKEN, hidden])
    })

  for (const projectId of ['', '.', '..', 'a/b', '%2e%2e', 'a?b', 'x'.repeat(129), 'a\nb']) {
    it(`refuses the project id ${JSON.stringify(projectId.slice(0, 10))}`, () => {
      assert.throws(
        () => clientOf('https://hub.example', { projectId }),
        (error: DeployError) => error.code === 'invalid_input',
      )
    })
  }

  for (const version of ['', '..', '../x', '1/2', '1?x', '1 2']) {
    it(`refuses the version ${JSON.stringify(version)} before it sends anything`, async t => {
      const { client, calls } = await withHub(t)
      assert.equal((await refusalOf(() => client.readDescriptor(version))).code, 'invalid_input')
      assert.deepEqual(calls, [])
    })
  }

  it('encodes a version in the path', async t => {
    const { client, calls } = await withHub(t)
    await refusalOf(() => client.readDescriptor('1.0.0+build.1'))
    assert.equal(calls.at(-1)?.route, 'GET /v1/projects/shop/artifacts/1.0.0%2Bbuild.1')
  })
})

describe('the token', () => {
  it('is not sent to a download_url of another origin (contract 2.2)', async t => {
    const blob = answering({ 'GET /a': [200, 'sealed'] })
    const { url } = await serve(t, blob.handler)
    const { client } = await withHub(t, { [ARTIFACT]: [200, descriptorWith({ download_url: `${url}/a` })] })
    await download(t, client, await client.readDescriptor('1.0.0'))
    assert.deepEqual(blob.calls, [{ route: 'GET /a', authorization: undefined, body: undefined }])
  })

  it('is not sent to another origin after a redirect of a download or a query', async t => {
    const blob = answering({ 'GET /a': [200, 'sealed'], 'GET /latest': [200, { version: '1.0.0' }] })
    const { url } = await serve(t, blob.handler)
    const { client } = await withHub(t, {
      'GET /download': [302, '', { Location: `${url}/a` }],
      [LATEST]: [307, '', { Location: `${url}/latest` }],
    })
    await client.readLatestVersion()
    await download(t, client, await client.readDescriptor('1.0.0'))
    assert.deepEqual(
      blob.calls.map(call => [call.route, call.authorization]),
      [
        ['GET /latest', undefined],
        ['GET /a', undefined],
      ],
    )
  })

  it('is not sent with a redirected POST, and neither are the dev key and the credential', async t => {
    const elsewhere = answering({})
    const { url } = await serve(t, elsewhere.handler)
    const away: Answer = [307, '', { Location: url }]
    const refusals = [
      await refusalOf((await withHub(t, { 'POST /v1/auth': away })).client.authenticate),
      await refusalOf(async () => (await withHub(t, { [AUTHORIZE]: away })).client.authorize('c', SIGNATURE)),
    ]
    assert.deepEqual(
      refusals.map(({ code }) => code),
      ['artifact_unavailable', 'artifact_unavailable'],
    )
    const { client } = await withHub(t, { [SENT_REPORT]: away })
    assert.equal((await client.sendReport({ body: REPORT, retry: true, timeoutMs: 5000 })).status, 307)
    assert.deepEqual(elsewhere.calls, [])
  })
})

describe('download_url', () => {
  for (const status of [403, 404, 410]) {
    it(`that answers ${status} after a failed attempt is replaced once by a fresh one`, async t => {
      const routes = {
        'GET /download': [
          [503, ''],
          [status, ''],
        ],
        'GET /fresh': [200, 'sealed'],
      } satisfies Routes
      const descriptors: Answer[] = [
        [200, descriptorWith({})],
        [200, descriptorWith({ download_url: '/fresh' })],
      ]
      const { client, calls } = await withHub(t, { ...routes, [ARTIFACT]: descriptors })
      const { size, sha256 } = await download(t, client, await client.readDescriptor('1.0.0'))
      assert.deepEqual([size, sha256], [6, hash('sha256', 'sealed')])
      const tried = ['GET /download', 'GET /download', ARTIFACT, 'GET /fresh']
      assert.deepEqual(
        calls.slice(-4).map(({ route }) => route),
        tried,
      )
    })
  }

  it('is not replaced if the first attempt is refused, or by one with another signature', async t => {
    const other = descriptorWith({ download_url: '/fresh', signature: Buffer.alloc(64, 8).toString('base64') })
    const refusals: [Answer[], expected: string[]][] = [
      [[[403, '']], ['GET /download']],
      [
        [
          [503, ''],
          [403, ''],
        ],
        ['GET /download', 'GET /download', ARTIFACT],
      ],
    ]
    for (const [answers, expected] of refusals) {
      const { client, calls } = await withHub(t, {
        'GET /download': answers,
        [ARTIFACT]: [
          [200, descriptorWith({})],
          [200, other],
        ],
      })
      const descriptor = await client.readDescriptor('1.0.0')
      const before = calls.length
      const refusal = await refusalOf(() => download(t, client, descriptor))
      assert.equal(refusal.code, 'artifact_unavailable')
      assert.deepEqual(
        calls.slice(before).map(({ route }) => route),
        expected,
      )
    }
  })

  const certificate = makeCertificate()
  it('with plain http on the https hub itself is fetched over https, with the token', {
    skip: certificate === undefined && 'openssl is not installed',
  }, async t => {
    const routes: Routes = { 'POST /v1/auth': [200, { access_token: TOKEN }], 'GET /download': [200, 'sealed'] }
    const { handler, calls } = answering(routes)
    const server = await serveTls(t, certificate as object, handler)
    routes[ARTIFACT] = [200, descriptorWith({ download_url: `http://127.0.0.1:${server.port}/download` })]
    const wire = createTestedWire({ ca: certificate?.cert as string })
    const access = { hubUrl: server.url, projectId: 'shop', devkey: 'k', secrets: NO_SECRETS }
    const client = createProjectClient({ wire, reportWire: wire }, access)
    await download(t, client, await client.readDescriptor('1.0.0'))
    assert.deepEqual([calls.at(-1)?.route, calls.at(-1)?.authorization], ['GET /download', BEARER])
  })

  for (const url of ['http://blob.example/a', 'file:///etc/passwd', 'https://user:pass@blob.example/a']) {
    it(`such as ${url} is refused as insecure_url`, async t => {
      const { client } = await withHub(t, { [ARTIFACT]: [200, descriptorWith({ download_url: url })] })
      const act = async () => await download(t, client, await client.readDescriptor('1.0.0'))
      assert.equal((await refusalOf(act)).code, 'insecure_url')
    })
  }
})

describe('a refusal', () => {
  it('does not name a URL that a foreign answer gave', async t => {
    const last = await serve(t, (_, response) => response.writeHead(403).end('{"error":"not for you"}'))
    const other = await serve(t, (_, response) =>
      response.writeHead(302, { Location: `${last.url}/secret-path` }).end(),
    )
    const { client } = await withHub(t, { [LATEST]: [302, '', { Location: other.url }] })
    const { message } = await refusalOf(() => client.readLatestVersion())
    assert.ok(message.includes(`: ${other.url}'s redirect target answered 403. `), message)
    assert.doesNotMatch(message, new RegExp(`secret-path|not for you|${last.port}`))
  })

  type Act = (client: ProjectClient, t: TestContext) => Promise<unknown>
  const calls: Record<string, { route: string; act: Act; denied: object; other: object }> = {
    auth: { route: 'POST /v1/auth', act: c => c.authenticate(), denied: AuthenticationError, other: DeploymentError },
    latest: { route: LATEST, act: c => c.readLatestVersion(), denied: ArtifactError, other: ArtifactError },
    artifact: { route: ARTIFACT, act: c => c.readDescriptor('1.0.0'), denied: ArtifactError, other: ArtifactError },
    download: {
      route: 'GET /download',
      act: async (c, t) => download(t, c, await c.readDescriptor('1.0.0')),
      denied: ArtifactError,
      other: ArtifactError,
    },
    authorize: {
      route: AUTHORIZE,
      act: c => c.authorize('c', SIGNATURE),
      denied: AuthenticationError,
      other: ArtifactError,
    },
  }
  for (const [name, { route, act, denied, other }] of Object.entries(calls)) {
    for (const status of [400, 401, 403, 404, 500]) {
      it(`of ${name} with ${status} becomes the error of contract 7 and quotes the status and the hub's reason`, async t => {
        const { client } = await withHub(t, { [route]: [status, { error: 'because of this' }] })
        const error = await refusalOf(() => act(client, t))
        assert.equal(error.constructor, status === 401 || status === 403 ? denied : other)
        assert.match(error.message, new RegExp(`${status}.*because of this`))
      })
    }
  }
})

describe('a 2xx answer that breaks the contract', () => {
  const cases: [route: string, body: unknown, code: string][] = [
    ['POST /v1/auth', {}, 'bad_response'],
    ['POST /v1/auth', '<html>', 'bad_response'],
    ['POST /v1/auth', { access_token: '' }, 'bad_response'],
    ['POST /v1/auth', { access_token: 'a b' }, 'bad_response'],
    ['POST /v1/auth', { access_token: 'fifteen-letters' }, 'bad_response'],
    ['POST /v1/auth', { access_token: 'a\r\nX-Evil: 1' }, 'bad_response'],
    ['POST /v1/auth', { access_token: 'x'.repeat(9000) }, 'bad_response'],
    [LATEST, {}, 'no_published_version'],
    [LATEST, { version: null }, 'no_published_version'],
    [LATEST, { version: ' ' }, 'no_published_version'],
    [LATEST, { version: 1 }, 'bad_response'],
    [LATEST, { version: '../../etc' }, 'bad_response'],
    [LATEST, [], 'bad_response'],
    [LATEST, '', 'bad_response'],
    [ARTIFACT, descriptorWith({ download_url: '' }), 'bad_response'],
    [ARTIFACT, descriptorWith({ download_url: 'http://[' }), 'bad_response'],
    [ARTIFACT, descriptorWith({ signature: undefined }), 'missing_signature'],
    [ARTIFACT, descriptorWith({ signature: '' }), 'missing_signature'],
    [ARTIFACT, descriptorWith({ signature: `${SIGNATURE}\n` }), 'invalid_signature_format'],
    [ARTIFACT, descriptorWith({ signature: SIGNATURE.replaceAll('=', '') }), 'invalid_signature_format'],
    [ARTIFACT, descriptorWith({ signature: 'aGk=' }), 'invalid_signature_format'],
    [ARTIFACT, descriptorWith({ signer_public_key: undefined }), 'bad_response'],
    [AUTHORIZE, {}, 'bad_response'],
    [AUTHORIZE, { dek: 7 }, 'bad_response'],
    [AUTHORIZE, { dek: '' }, 'decryption_failed'],
    [AUTHORIZE, { dek: Buffer.alloc(16).toString('base64') }, 'decryption_failed'],
    [AUTHORIZE, { dek: Buffer.alloc(32).toString('hex') }, 'decryption_failed'],
    [AUTHORIZE, { dek: ` ${DEK.toString('base64')}` }, 'decryption_failed'],
  ]
  const acts: Record<string, (client: ProjectClient) => Promise<unknown>> = {
    'POST /v1/auth': client => client.authenticate(),
    [LATEST]: client => client.readLatestVersion(),
    [ARTIFACT]: client => client.readDescriptor('1.0.0'),
    [AUTHORIZE]: client => client.authorize('c', SIGNATURE),
  }
  for (const [route, body, code] of cases) {
    it(`from ${route}, ${JSON.stringify(body).slice(0, 60)}, is ${code}`, async t => {
      const { client } = await withHub(t, { [route]: [200, body] })
      const error = await refusalOf(async () => acts[route]?.(client))
      assert.equal(error.code, code)
      assert.doesNotMatch(error.message, /X-Evil|AAAAAAA|xxxxxxx|[\p{Cc}]/u)
    })
  }
})

function resolve(downloadUrl: string, hub = 'https://hub.example'): string {
  return resolveDownloadUrl(downloadUrl, `${hub}/v1/projects/shop/artifacts/1.0.0`, new URL(hub)).href
}

describe('resolveDownloadUrl', () => {
  const cases: { name: string; given: string; hub?: string; expected: string }[] = [
    { name: 'keeps another host', given: 'https://blob.example/a?sig=1', expected: 'https://blob.example/a?sig=1' },
    { name: 'upgrades the hub itself', given: 'http://hub.example/a?b=1', expected: 'https://hub.example/a?b=1' },
    { name: 'upgrades an explicit port 80', given: 'http://hub.example:80/a', expected: 'https://hub.example/a' },
    {
      name: "upgrades the hub's own port",
      given: 'http://hub.example:8443/a',
      hub: 'https://hub.example:8443',
      expected: 'https://hub.example:8443/a',
    },
    {
      name: 'uses the default port when none is written',
      given: 'http://hub.example/a',
      hub: 'https://hub.example:8443',
      expected: 'https://hub.example/a',
    },
    { name: 'upgrades a host in capitals', given: 'http://HUB.example/a', expected: 'https://hub.example/a' },
    { name: 'keeps http for another port', given: 'http://hub.example:8080/a', expected: 'http://hub.example:8080/a' },
    { name: 'keeps http for another host', given: 'http://blob.example/a', expected: 'http://blob.example/a' },
    {
      name: "keeps http for a host that only starts with the hub's name",
      given: 'http://hub.example.evil.example/a',
      expected: 'http://hub.example.evil.example/a',
    },
    {
      name: 'keeps http for an http hub',
      given: 'http://127.0.0.1:8080/a',
      hub: 'http://127.0.0.1:8080',
      expected: 'http://127.0.0.1:8080/a',
    },
    {
      name: 'resolves a path',
      given: '/download/1',
      hub: 'https://hub.example',
      expected: 'https://hub.example/download/1',
    },
    {
      name: 'resolves a relative path against the URL of the answer',
      given: 'file',
      expected: 'https://hub.example/v1/projects/shop/artifacts/file',
    },
    {
      name: 'lets a hub on this host refer to another service on this host',
      given: 'http://127.0.0.1:9000/a',
      hub: 'https://127.0.0.1:8443',
      expected: 'http://127.0.0.1:9000/a',
    },
  ]
  for (const { name, given, hub, expected } of cases) it(name, () => assert.equal(resolve(given, hub), expected))

  for (const given of ['http://[', 'https://', 'https://hub.example:99999/']) {
    it(`refuses ${given} as bad_response`, () => {
      assert.throws(
        () => resolve(given),
        (error: ArtifactError) => error.code === 'bad_response',
      )
    })
  }

  for (const [given, found] of [
    ['file:///etc/passwd', /found one with the scheme "file":/],
    ['foo:bar', /found one with the scheme "foo":/],
    ['https://user:pass@blob.example/a', /found one with a user name or password:/],
  ] as const)
    for (const hub of ['https://hub.example', 'http://127.0.0.1:8080'])
      it(`refuses ${given} from ${hub} as insecure_url, and says that it was a download_url`, () => {
        assert.throws(
          () => resolve(given, hub),
          (error: ConfigError) => {
            assert.ok(error instanceof ConfigError && error.code === 'insecure_url')
            assert.match(error.message, found)
            assert.match(error.message, /^Expected an https URL as the download_url that https?:/)
            return !/redirect|pass@|null/.test(error.message)
          },
        )
      })
})

const ROUTE = 'POST /v1/deployments/report'
const ONCE = { retry: false, timeoutMs: 10_000 }

function senderTo(url: string) {
  return createProjectSender(clientOf(url), { hubUrl: url, projectId: 'shop' })
}

describe('createProjectSender', () => {
  const answers: [number, object][] = [
    [200, { accepted: true }],
    [201, { accepted: true }],
    [204, { accepted: true }],
    [302, { accepted: false, final: true }],
    [400, { accepted: false, final: true }],
    [401, { accepted: false, final: false }],
    [403, { accepted: false, final: false }],
    [408, { accepted: false, final: false }],
    [429, { accepted: false, final: false }],
    [500, { accepted: false, final: false }],
  ]
  for (const [status, expected] of answers) {
    it(`turns ${status} into ${JSON.stringify(expected)}`, async t => {
      const { server } = await serveHub(t, { [ROUTE]: [status, status === 204 ? '' : { error: 'because of this' }] })
      const delivery = await senderTo(server.url).send(reportOf(), ONCE)
      assert.partialDeepStrictEqual(delivery, status < 300 ? expected : { ...expected, status })
      if (!delivery.accepted) assert.match(delivery.error, new RegExp(`${status}.*because of this`))
    })
  }

  it('lets a report wait when the hub refuses the dev key', async t => {
    const { server, calls } = await serveHub(t, { 'POST /v1/auth': [403, { error: 'revoked' }] })
    const delivery = await senderTo(server.url).send(reportOf(), ONCE)
    assert.partialDeepStrictEqual(delivery, { accepted: false, status: null, final: false, denied: true })
    assert.equal(calls.length, 1)
  })

  it('lets a report wait when no hub answers, and does not throw', async () => {
    const delivery = await senderTo(`http://127.0.0.1:${CLOSED_PORT}`).send(reportOf(), ONCE)
    assert.partialDeepStrictEqual(delivery, { accepted: false, attempts: 4, status: null, final: false })
  })

  it("builds its address from the project and the hub's URL, without trailing slashes in that URL", () => {
    assert.equal(senderTo('https://hub.example/').address, senderTo('https://hub.example').address)
    assert.notEqual(senderTo('https://hub.example').address, senderTo('https://other.example').address)
    assert.equal(senderTo('https://hub.example/x').address, 'https://hub.example/x/v1/deployments/report shop')
  })
})

describe('buildProjectReportBody', () => {
  it('returns the fields of the contract and no others (contract 2.2)', () => {
    const report = reportOf({ plugins: [{ id: 'cart', version: '2.0.0' }] })
    assert.deepEqual(buildProjectReportBody(report, 'shop'), {
      project_id: 'shop',
      deployment_id: report.deployment_id,
      status: 'success',
      version: '2.0.0',
      started_at: '2026-01-02T03:04:05.678Z',
      completed_at: '2026-01-02T03:04:07.000Z',
      plugins: [{ id: 'cart', version: '2.0.0' }],
    })
  })

  it('returns no plugins when none are known, and names the requested version', () => {
    const body = buildProjectReportBody(reportOf({ version: null, requested_version: 'latest' }), 'shop')
    assert.deepEqual([body.plugins, body.version], [[], 'latest'])
    assert.equal(
      buildProjectReportBody(reportOf({ version: null, requested_version: null }), 'shop').version,
      'unknown',
    )
  })
})
