import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it, type TestContext } from 'node:test'
import { ArtifactError, AuthenticationError, type DeployError, DeploymentError } from '../../../src/core/errors.ts'
import { type ArtifactDescriptor, createProjectClient, type ProjectClient } from '../../../src/project/api/client.ts'
import { NO_SECRETS } from '../../install/prepared-host.ts'
import { makeCertificate } from '../../net/certificates.ts'
import { serve, serveTls } from '../../net/loopback-server.ts'
import { openPrivateFile } from '../../net/private-file.ts'
import { createTestedWire } from '../../net/tested-wire.ts'
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
