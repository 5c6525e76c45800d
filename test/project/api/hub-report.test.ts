import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { buildReportBody, createReportSender } from '../../../src/project/api/hub-report.ts'
import { reportOf } from '../../install/prepared-host.ts'
import { CLOSED_PORT } from '../../net/ports.ts'
import { clientOf, serveHub } from './stub-hub.ts'

const ROUTE = 'POST /v1/deployments/report'
const ONCE = { retry: false, timeoutMs: 10_000 }

function senderTo(url: string) {
  return createReportSender(clientOf(url), { hubUrl: url, projectId: 'shop' })
}

describe('createReportSender', () => {
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

describe('buildReportBody', () => {
  it('returns the fields of the contract and no others (contract 2.2)', () => {
    const report = reportOf({ plugins: [{ id: 'cart', version: '2.0.0' }] })
    assert.deepEqual(buildReportBody(report, 'shop'), {
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
    const body = buildReportBody(reportOf({ version: null, requested_version: 'latest' }), 'shop')
    assert.deepEqual([body.plugins, body.version], [[], 'latest'])
    assert.equal(buildReportBody(reportOf({ version: null, requested_version: null }), 'shop').version, 'unknown')
  })
})
