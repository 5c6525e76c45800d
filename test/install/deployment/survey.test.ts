import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { startDeployment } from '../../../src/install/deployment/deployment.ts'
import { HostLock } from '../../../src/install/deployment/host-lock.ts'
import { surveyHost } from '../../../src/install/deployment/survey.ts'
import { acquireLock } from '../../../src/install/host/locks/lock.ts'
import { type DeployState, MARKETPLACE_TRANSITIONS } from '../../../src/marketplace/states.ts'
import { collectLog } from '../collected-log.ts'
import { requestOf, toolsOf } from '../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost } from '../prepared-host.ts'

async function makeScene(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const start = { transitions: MARKETPLACE_TRANSITIONS, facts: factsOf(), sender: undefined }
  const deployment = startDeployment<DeployState>(requestOf(layout), toolsOf({ log }), start)
  return { layout, log, deployment, lock: new HostLock(deployment) }
}

describe('surveyHost', () => {
  it('checks with the lock, which it then releases', async t => {
    const { layout, deployment, lock } = await makeScene(t)
    let wasLocked: boolean | undefined
    await surveyHost(deployment, lock, async () => {
      wasLocked = existsSync(layout.lock)
    })
    assert.deepEqual([wasLocked, lock.isHeld, existsSync(layout.lock)], [true, false, false])
  })

  it('keeps the lock when the check refuses, so that a recovery that failed is not repeated', async t => {
    const { deployment, lock } = await makeScene(t)
    const refused = new DeploymentError('place_taken', 'Somebody is there.')
    await assert.rejects(
      surveyHost(deployment, lock, () => Promise.reject(refused)),
      refused,
    )
    assert.ok(lock.isHeld)
    lock.release()
  })

  it('neither waits nor looks while another run has the host, whose process it names', async t => {
    const { layout, log, deployment, lock } = await makeScene(t)
    const holder = await acquireLock({ path: layout.lock, timeoutMs: 0, runUrl: null, log: () => {} })
    t.after(() => holder.release())
    await surveyHost(deployment, lock, () => assert.fail('looked'))
    assert.ok(!lock.isHeld)
    assert.match(log.lines.join(), new RegExp(`at work here: process ${process.pid} `))
  })
})
