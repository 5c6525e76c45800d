import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { after, before, describe, it, type TestContext } from 'node:test'
import { ArtifactError, AuthenticationError, type DeployError } from '../../src/core/errors.ts'
import { verifyHmacSignature } from '../../src/core/trust/signature.ts'
import {
  buildMarketplaceReportBody,
  createMarketplaceClient,
  createMarketplaceSender,
  type HubBases,
  type MarketplaceClient,
  marketplaceRefusal,
  OWN_INPUTS,
} from '../../src/marketplace/hub.ts'
import { openStage, pluginFiles, SIGNING_SECRET, type Stage } from '../e2e/harness/stage.ts'
import { reportOf } from '../install/prepared-host.ts'
import { CLOSED_PORT, type Handler, type LoopbackServer, serve } from '../net/loopback-server.ts'
import { createTestedWire } from '../net/tested-wire.ts'
import { artifactRequest } from './deploy-request.ts'

const REPORT = {
  kind: 'plugin',
  slug: 'greeter',
  version: '1.0.0',
  status: 'success',
  started_at: '2026-01-02T03:04:05.678Z',
  completed_at: '2026-01-02T03:04:06.678Z',
  host_id: 'host-1',
  repo: null,
  error_message: null,
} as const
const ONCE = { retry: false, timeoutMs: 10_000 }

function clientOf(
  url: string,
  bases: Partial<HubBases> = {},
  kind: 'plugin' | 'service' = 'plugin',
): MarketplaceClient {
  const all = { hub: url, services: url, deployments: url, ...bases }
  return createMarketplaceClient(createTestedWire(), { bases: all, kind, slug: 'greeter', apiKey: 'the key' })
}

async function withHub(
  t: TestContext,
  handler: Handler,
): Promise<{ server: LoopbackServer; client: MarketplaceClient }> {
  const server = await serve(t, handler)
  return { server, client: clientOf(server.url) }
}

function answering(status: number, body: string, headers: Record<string, string> = {}): Handler {
  return (_, response) => response.writeHead(status, headers).end(body)
}

function calls(server: LoopbackServer): unknown[] {
  return server.requests.map(({ method, url, headers }: IncomingMessage) => [method, url, headers['x-api-key']])
}

async function refusalOf(act: () => Promise<unknown>): Promise<DeployError> {
  try {
    await act()
  } catch (error) {
    return error as DeployError
  }
  return assert.fail('nothing was refused')
}

describe('MarketplaceClient', () => {
  it('sends the key with the artifact fetch and the report, and nowhere else (contract 5.1)', async t => {
    const { server, client } = await withHub(t, (request, response) => {
      if (request.method === 'POST') response.writeHead(201).end('{}')
      else response.end(request.url?.includes('/install') ? 'zip' : '{"latest_version":"1.0.0"}')
    })
    await client.readListedVersion()
    await client.fetchArtifact(artifactRequest(t, '1.0.0'))
    await client.sendReport(REPORT, ONCE)
    assert.deepEqual(calls(server), [
      ['GET', '/plugins/greeter', undefined],
      ['GET', '/plugins/greeter/install?version=1.0.0', 'the key'],
      ['POST', '/deployments/report', 'the key'],
    ])
  })

  it('requests services and reports below their own bases, paths included', async t => {
    const hub = await serve(t, answering(500, ''))
    const services = await serve(t, answering(200, '{"latest_version":"1.0.0"}'))
    const deployments = await serve(t, answering(201, '{}'))
    const bases = { services: `${services.url}/market/v2/`, deployments: `${deployments.url}/d` }
    const client = clientOf(hub.url, bases, 'service')
    await client.readListedVersion()
    await client.fetchArtifact(artifactRequest(t, 'latest'))
    await client.sendReport(REPORT, ONCE)
    assert.deepEqual(
      services.requests.map(({ url }) => url),
      ['/market/v2/services/greeter', '/market/v2/services/greeter/install?version=latest'],
    )
    assert.deepEqual(
      deployments.requests.map(({ url }) => url),
      ['/d/deployments/report'],
    )
    assert.deepEqual(hub.requests, [])
  })

  it('requests plugins from the hub itself, even if services have their own base URL', async t => {
    const hub = await serve(t, answering(200, '{"latest_version":"1.0.0"}'))
    await clientOf(`${hub.url}/api/`, { services: 'http://127.0.0.1:1' }).readListedVersion()
    assert.equal(hub.requests[0]?.url, '/api/plugins/greeter')
  })

  it('encodes the version in the query', async t => {
    const { server, client } = await withHub(t, answering(200, 'zip'))
    await client.fetchArtifact(artifactRequest(t, '1.0.0+build.1'))
    assert.equal(server.requests[0]?.url, '/plugins/greeter/install?version=1.0.0%2Bbuild.1')
  })
})

describe('readListedVersion', () => {
  const latest = {
    '{"latest_version":"1.4.0"}': '1.4.0',
    '{"latest_version":" v2 ","other":[1]}': 'v2',
  }
  for (const [body, version] of Object.entries(latest)) {
    it(`reads ${version} from ${body}`, async t => {
      const { client } = await withHub(t, answering(200, body))
      assert.deepEqual(await client.readListedVersion(), { version })
    })
  }

  const refused = {
    '{}': 'no_published_version',
    '{"latest_version":null}': 'no_published_version',
    '{"latest_version":""}': 'no_published_version',
    '{"latest_version":"  "}': 'no_published_version',
    '{"latest_version":1.4}': 'bad_response',
    '{"latest_version":"../../etc/passwd"}': 'bad_response',
    '{"latest_version":"1.0?x=1"}': 'bad_response',
    '{"latest_version":"1.0\\n::error::x"}': 'bad_response',
    '[]': 'bad_response',
    '"1.0"': 'bad_response',
    '<html>hello</html>': 'bad_response',
    '': 'bad_response',
  }
  for (const [body, code] of Object.entries(refused)) {
    it(`refuses ${JSON.stringify(body)} as ${code}`, async t => {
      const { client } = await withHub(t, answering(200, body))
      const error = await refusalOf(() => client.readListedVersion())
      assert.ok(error instanceof ArtifactError)
      assert.equal(error.code, code)
      assert.doesNotMatch(error.message, /\n/)
    })
  }
})

describe('a refusal', () => {
  const statuses = [
    [400, 'artifact_unavailable', ArtifactError],
    [401, 'authentication_failed', AuthenticationError],
    [403, 'authentication_failed', AuthenticationError],
    [404, 'not_found', ArtifactError],
    [410, 'artifact_unavailable', ArtifactError],
    [500, 'artifact_unavailable', ArtifactError],
  ] as const
  for (const [status, code, type] of statuses) {
    it(`with ${status} becomes ${code} and quotes the status and the hub's reason`, async t => {
      const { client } = await withHub(t, answering(status, '{"error":"because of this"}'))
      const error = await refusalOf(() => client.fetchArtifact(artifactRequest(t, '1')))
      assert.ok(error instanceof type)
      assert.equal(error.code, code)
      assert.match(error.message, new RegExp(`${status}.*because of this`))
      const listed = client.readListedVersion()
      if (status === 500) await assert.rejects(listed, { code })
      else assert.deepEqual(await listed, { status })
    })
  }

  const bodies = {
    'error before detail and message': ['{"message":"c","detail":"b","error":"aaa"}', /\(aaa\)/],
    'detail before message': ['{"message":"c","detail":"bbb"}', /\(bbb\)/],
    message: ['{"message":"ccc"}', /\(ccc\)/],
    'detail when error is not text': ['{"error":{"code":1},"detail":"bbb"}', /\(bbb\)/],
    'a detail that is a list, as JSON': ['{"detail":[{"msg":"field required"}]}', /\(\[\{"msg":"field required"\}\]\)/],
    'message when error is empty': ['{"error":"","message":"ccc"}', /\(ccc\)/],
    'nothing from a list': ['[{"error":"x"}]', /answered 403\./],
    'nothing from HTML': ['<h1>no</h1>', /answered 403\./],
  } as const
  for (const [name, [body, said]] of Object.entries(bodies)) {
    it(`quotes ${name}`, async t => {
      const { client } = await withHub(t, answering(403, body))
      assert.match((await refusalOf(() => client.fetchArtifact(artifactRequest(t, '1')))).message, said)
    })
  }

  const remedies: [number, RegExp, RegExp, string?][] = [
    [400, /signing key.*create one/, /again later/, 'the owner has no signing key'],
    [400, /Ask the hub's operator/, /signing key/, 'tag missing'],
    [403, /a matrix over slugs needs a key for each/, /again later/],
    [410, /Ask the hub's operator/, /again later/],
    [503, /Try again later/, /signing/],
  ]
  for (const [status, advice, never, reason = 'for a reason'] of remedies) {
    it(`with ${status} (${reason}) says what to do`, async t => {
      const { client } = await withHub(t, answering(status, JSON.stringify({ error: reason })))
      const { message } = await refusalOf(() => client.fetchArtifact(artifactRequest(t, '1')))
      assert.match(message, new RegExp(`${status} \\(${reason}\\)\\. `))
      assert.match(message, advice)
      assert.doesNotMatch(message, never)
    })
  }

  it('with 403 mentions a bound key only if the step sent an API key', () => {
    const subject = { kind: 'plugin', slug: 'greeter', inputs: { ...OWN_INPUTS, apiKey: 'access-token' } } as const
    const wanted = { name: 'the hosts', base: { url: 'https://hub.example', input: 'hub-url' }, isSigned: false }
    const { message } = marketplaceRefusal({ status: 403, body: {} }, subject, wanted)
    assert.match(message, / answered 403\. Check access-token, which may not allow this request\.$/)
  })

  it("with 403 gives no advice about a matrix for the one key of a project's sources", () => {
    const subject = { kind: 'plugin', slug: 'greeter', inputs: { ...OWN_INPUTS, apiKey: 'sources-api-key' } } as const
    const wanted = { name: 'the version', base: { url: 'https://hub.example', input: 'hub-url' }, isSigned: false }
    const { message } = marketplaceRefusal({ status: 403, body: {} }, subject, wanted)
    assert.match(
      message,
      / Check sources-api-key: a key may be bound to one kind and slug; give each such slug its own line in sources-api-keys\.$/,
    )
  })

  it('with 404 names the base URL, without a query, and the input that sets it', async t => {
    const { server } = await withHub(t, answering(404, '{}'))
    const elsewhere = { hub: `${server.url}/app/`, services: `${server.url}/svc` }
    const said = async (kind: 'plugin' | 'service') =>
      (await refusalOf(() => clientOf(server.url, elsewhere, kind).fetchArtifact(artifactRequest(t, '1')))).message
    assert.match(await said('plugin'), /from http:[^ ]*\/app: .* Check slug, kind, version and hub-url\.$/)
    assert.match(await said('service'), /from http:[^ ]*\/svc: .* Check slug, kind, version and services-url\.$/)
  })

  it('with 404 for a version with a leading v proposes the version without the v', async t => {
    const { client } = await withHub(t, answering(404, '{}'))
    const said = async (version: string) =>
      (await refusalOf(() => client.fetchArtifact(artifactRequest(t, version)))).message
    assert.match(await said('v1.2'), / hub-url\. Most versions are published without the v: try 1\.2\.$/)
    for (const version of ['1.2', 'vintage', 'latest']) assert.match(await said(version), / hub-url\.$/)
  })

  it('with 404 does not advise checking an input that has its default', async t => {
    const { server } = await withHub(t, answering(404, '{}'))
    const { message } = await refusalOf(() =>
      clientOf(server.url, {}, 'service').fetchArtifact(artifactRequest(t, '1')),
    )
    assert.match(message, / Check slug, kind, version and hub-url, or set services-url\.$/)
  })

  it('quotes the hub in clean text of limited length', async t => {
    const error = `\u001b[31m::error::x\r\n##[group]${'y'.repeat(5000)}`
    const { client } = await withHub(t, answering(403, JSON.stringify({ error })))
    const { message } = await refusalOf(() => client.fetchArtifact(artifactRequest(t, '1')))
    assert.doesNotMatch(message, /[\p{Cc}]/u)
    assert.ok(message.length < 1000)
  })
})

describe('fetchArtifact', () => {
  it('returns the digest, the signature header and the values of the other headers', async t => {
    const headers = {
      'X-Signature': 'hmac_sha256:00',
      'X-Plugin': 'greeter@1.4.0',
      'X-Service': 'other@9',
      'X-Repo': 'example/greeter@v1.4.0',
    }
    const { client } = await withHub(t, answering(200, 'zip', headers))
    const served = await client.fetchArtifact(artifactRequest(t, '1.4.0'))
    assert.deepEqual(
      [served.artifact.size, served.artifact.sha256, served.signatureHeader, served.headerVersion, served.repo],
      [3, hash('sha256', 'zip'), 'hmac_sha256:00', '1.4.0', 'example/greeter@v1.4.0'],
    )
  })

  it("reads a service's version from the service header", async t => {
    const server = await serve(t, answering(200, 'zip', { 'X-Plugin': 'greeter@1', 'X-Service': 'greeter@2' }))
    const served = await clientOf(server.url, {}, 'service').fetchArtifact(artifactRequest(t, '2'))
    assert.equal(served.headerVersion, '2')
  })

  const unusable = ['greeter', 'greeter@', 'greeter@../1', 'greeter@1 2', '@scope/greeter']
  for (const header of unusable) {
    it(`finds no version in X-Plugin: ${header}`, async t => {
      const { client } = await withHub(t, answering(200, 'zip', { 'X-Plugin': header }))
      assert.equal((await client.fetchArtifact(artifactRequest(t, '1'))).headerVersion, undefined)
    })
  }

  for (const header of ['example', 'a/b/c@1', 'a b/c', 'a/b@1 2', `a/${'b'.repeat(400)}`]) {
    it(`finds no repository in X-Repo: ${header.slice(0, 20)}`, async t => {
      const { client } = await withHub(t, answering(200, 'zip', { 'X-Repo': header }))
      assert.equal((await client.fetchArtifact(artifactRequest(t, '1'))).repo, undefined)
    })
  }
})

const GREETER = { kind: 'plugin', slug: 'greeter' } as const

function senderTo(url: string, hub = url) {
  const access = { ...GREETER, bases: { hub, services: hub, deployments: url }, apiKey: 'key' }
  return createMarketplaceSender(createMarketplaceClient(createTestedWire(), access), access)
}

describe('createMarketplaceSender', () => {
  const answers: [number, object][] = [
    [200, { accepted: true }],
    [201, { accepted: true }],
    [302, { accepted: false, final: true }],
    [400, { accepted: false, final: true }],
    [401, { accepted: false, final: false }],
    [403, { accepted: false, final: false }],
    [404, { accepted: false, final: true }],
    [408, { accepted: false, final: false }],
    [429, { accepted: false, final: false }],
    [500, { accepted: false, final: false }],
    [503, { accepted: false, final: false }],
  ]
  for (const [status, expected] of answers) {
    it(`turns ${status} into ${JSON.stringify(expected)}`, async t => {
      const handler: Handler = (_, response) => response.writeHead(status, { Location: '/' }).end('{"error":"why"}')
      const server = await serve(t, handler)
      assert.partialDeepStrictEqual(
        await senderTo(server.url).send(reportOf(), { retry: false, timeoutMs: 10_000 }),
        status < 300 ? expected : { ...expected, status },
      )
      assert.equal(server.requests.length, 1)
    })
  }

  it('lets a report wait when no hub answers, and does not throw', async () => {
    const sender = senderTo(`http://127.0.0.1:${CLOSED_PORT}`)
    for (const [retry, attempts] of [
      [false, 1],
      [true, 4],
    ] as const)
      assert.partialDeepStrictEqual(await sender.send(reportOf(), { retry, timeoutMs: 10_000 }), {
        accepted: false,
        attempts,
        status: null,
        final: false,
      })
  })

  it('names the URL of a report that the hub has no route for, and the input that sets it', async t => {
    const server = await serve(t, (_, response) => response.writeHead(404).end('{}'))
    const said = async (hub?: string): Promise<string> => {
      const sender = senderTo(`${server.url}/app/`, hub)
      const delivery = await sender.send(reportOf(), { retry: false, timeoutMs: 10_000 })
      return delivery.accepted ? '' : delivery.error
    }
    const sent = /answered 404\. The report was sent to http:[^ ]*\/app: check /.source
    assert.match(await said(server.url), new RegExp(`${sent}deployments-url\\.$`))
    assert.match(await said(), new RegExp(`${sent}hub-url, or set deployments-url\\.$`))
  })

  it('retries the report of this run, but sends a waiting report once', async t => {
    const handler: Handler = (_, response, nth) => response.writeHead(nth % 2 === 1 ? 503 : 201).end('{}')
    const server = await serve(t, handler)
    assert.deepEqual(await senderTo(server.url).send(reportOf(), { retry: true, timeoutMs: 10_000 }), {
      accepted: true,
      attempts: 2,
    })
    assert.partialDeepStrictEqual(await senderTo(server.url).send(reportOf(), { retry: false, timeoutMs: 10_000 }), {
      accepted: false,
      attempts: 1,
    })
  })

  it("builds its address from the kind, the slug and the hub's URL, without trailing slashes in that URL", () => {
    assert.equal(senderTo('https://hub.example/').address, senderTo('https://hub.example').address)
    assert.notEqual(senderTo('https://hub.example').address, senderTo('https://other.example').address)
  })
})

describe('buildMarketplaceReportBody', () => {
  it('returns the fields of the contract and no others', () => {
    assert.deepEqual(buildMarketplaceReportBody(reportOf({ repo: 'example/greeter@v2' }), GREETER), {
      kind: 'plugin',
      slug: 'greeter',
      version: '2.0.0',
      status: 'success',
      started_at: '2026-01-02T03:04:05.678Z',
      completed_at: '2026-01-02T03:04:07.000Z',
      host_id: 'host-1',
      repo: 'example/greeter@v2',
      error_message: null,
    })
  })

  it('names the requested version when none was found, and shortens the error', () => {
    const error = { code: 'network' as const, message: 'x'.repeat(5000), step: null }
    const body = buildMarketplaceReportBody(reportOf({ version: null, requested_version: '3.0.0', error }), GREETER)
    assert.deepEqual([body.version, body.error_message?.length], ['3.0.0', 2000])
    assert.equal(
      buildMarketplaceReportBody(reportOf({ version: null, requested_version: null }), GREETER).version,
      'unknown',
    )
  })
})

describe('the marketplace client with the reference hub', () => {
  let stage: Stage
  before(async () => {
    stage = await openStage()
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    await stage.publish('1.1.0', pluginFiles('1.1.0'))
  })
  after(() => stage.close())

  function client(apiKey = stage.apiKey): MarketplaceClient {
    return createMarketplaceClient(createTestedWire(), { ...GREETER, bases: bases(), apiKey })
  }

  function bases(): HubBases {
    const { url } = stage.hub
    return { hub: url, services: url, deployments: url }
  }

  it('reads the latest version, even with a key that the hub does not know', async () => {
    assert.deepEqual(await client('unknown').readListedVersion(), { version: '1.1.0' })
  })

  it('fetches a version with a valid signature', async t => {
    const request = { ...artifactRequest(t, '1.0.0'), signingSecret: SIGNING_SECRET }
    const served = await client().fetchArtifact(request)
    verifyHmacSignature(served.artifact, served.hmac, served.signatureHeader)
    assert.equal(served.headerVersion, '1.0.0')
  })

  it('is refused when the hub does not know its key', async t => {
    const request = artifactRequest(t, '1.0.0')
    await assert.rejects(client('unknown').fetchArtifact(request), AuthenticationError)
  })

  it('is refused a version that the hub does not serve', async t => {
    const request = artifactRequest(t, '9.0.0')
    await assert.rejects(client().fetchArtifact(request), { code: 'not_found' })
  })

  it('sends a report, which the hub accepts only with a key that it knows', async () => {
    const report = reportOf({
      error: { code: 'network', message: 'm', step: null },
      status: 'failed',
      outcome: 'failed',
    })
    const deliveryWith = (apiKey?: string) =>
      createMarketplaceSender(client(apiKey), { ...GREETER, bases: bases() }).send(report, {
        retry: false,
        timeoutMs: 10_000,
      })
    assert.deepEqual(await deliveryWith(), { accepted: true, attempts: 1 })
    const refused = await deliveryWith('unknown')
    assert.ok(!refused.accepted && !refused.final && refused.error.includes('401'))
  })
})
