import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createMarketplaceClient } from '../../../src/marketplace/api/client.ts'
import { buildReportBody, createReportSender } from '../../../src/marketplace/api/hub-report.ts'
import { reportOf } from '../../install/prepared-host.ts'
import { type Handler, serve } from '../../net/loopback-server.ts'
import { CLOSED_PORT } from '../../net/ports.ts'
import { createTestedWire } from '../../net/tested-wire.ts'

const GREETER = { kind: 'plugin', slug: 'greeter' } as const

function senderTo(url: string, hub = url) {
  const access = { ...GREETER, bases: { hub, services: hub, deployments: url }, apiKey: 'key' }
  return createReportSender(createMarketplaceClient(createTestedWire(), access), access)
}

describe('createReportSender', () => {
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

describe('buildReportBody', () => {
  it('returns the fields of the contract and no others', () => {
    assert.deepEqual(buildReportBody(reportOf({ repo: 'example/greeter@v2' }), GREETER), {
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
    const body = buildReportBody(reportOf({ version: null, requested_version: '3.0.0', error }), GREETER)
    assert.deepEqual([body.version, body.error_message?.length], ['3.0.0', 2000])
    assert.equal(buildReportBody(reportOf({ version: null, requested_version: null }), GREETER).version, 'unknown')
  })
})
