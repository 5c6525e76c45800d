import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { verifyArtifact } from '../../src/marketplace/prepare.ts'
import { startedDeployment } from './started-deployment.ts'

const HMAC = Buffer.alloc(32, 7)

/** A deployment, and the artifact that a hub has served for it with this signature. */
function served(t: TestContext, signatureHeader: string) {
  const { deployment } = startedDeployment(t, 'http://127.0.0.1:9')
  const artifact = { fd: -1, size: 1, sha256: 'ab'.repeat(32) }
  return { deployment, found: { served: { artifact, hmac: HMAC, signatureHeader }, asked: '1.0.0', listed: undefined } }
}

describe('verifyArtifact', () => {
  it('records that the signature was valid, for a run that ends before its next state', async t => {
    const { deployment, found } = served(t, `hmac_sha256:${HMAC.toString('hex')}`)
    await verifyArtifact(deployment, found as never)
    assert.equal(deployment.record.facts.signature_valid, true)
  })

  it('does not record an invalid signature as valid', async t => {
    const { deployment, found } = served(t, `hmac_sha256:${'00'.repeat(32)}`)
    await assert.rejects(verifyArtifact(deployment, found as never), { code: 'signature_mismatch' })
    assert.equal(deployment.record.facts.signature_valid, undefined)
  })
})
