import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { AuthenticationError } from '../../src/core/errors.ts'
import { verifyHmacSignature } from '../../src/core/trust/signature.ts'
import { createMarketplaceClient, type MarketplaceClient } from '../../src/marketplace/api/client.ts'
import type { HubBases } from '../../src/marketplace/api/hub-bases.ts'
import { createReportSender } from '../../src/marketplace/api/hub-report.ts'
import { openStage, pluginFiles, SIGNING_SECRET, type Stage } from '../e2e/harness/stage.ts'
import { reportOf } from '../install/prepared-host.ts'
import { createTestedWire } from '../net/tested-wire.ts'
import { artifactRequest } from './gate/open-artifact-file.ts'

const GREETER = { kind: 'plugin', slug: 'greeter' } as const

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
      createReportSender(client(apiKey), { ...GREETER, bases: bases() }).send(report, {
        retry: false,
        timeoutMs: 10_000,
      })
    assert.deepEqual(await deliveryWith(), { accepted: true, attempts: 1 })
    const refused = await deliveryWith('unknown')
    assert.ok(!refused.accepted && !refused.final && refused.error.includes('401'))
  })
})
