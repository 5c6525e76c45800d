import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../../src/core/errors.ts'
import { startDeployment } from '../../../../src/install/deployment/deployment.ts'
import { HostLock } from '../../../../src/install/deployment/run/host-lock.ts'
import { surveyHost } from '../../../../src/install/deployment/run/survey.ts'
import { begunPath, type Layout } from '../../../../src/install/host/layout.ts'
import { acquireLock } from '../../../../src/install/host/locks/lock.ts'
import { type DeployState, MARKETPLACE_TRANSITIONS } from '../../../../src/marketplace/states.ts'
import { collectLog } from '../../collected-log.ts'
import { requestOf, toolsOf } from '../../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost } from '../../prepared-host.ts'

/** Each function leaves a file that a quiet host does not have. */
const LEFT: Record<string, (layout: Layout) => void> = {
  'the lock of a run that has ended': ({ lock }) => writeFileSync(lock, ''),
  'the journal of a run that has only begun': layout => writeFileSync(begunPath(layout, randomUUID()), ''),
  'a report to send': ({ outbox }) => writeFileSync(join(outbox, 'report.json'), ''),
}

async function makeScene(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const start = { transitions: MARKETPLACE_TRANSITIONS, facts: factsOf(), sender: undefined }
  const deployment = startDeployment<DeployState>(requestOf(layout), toolsOf({ log }), start)
  return { layout, log, deployment, lock: new HostLock(deployment) }
}

describe('surveyHost', () => {
  it('checks a quiet host without taking its lock', async t => {
    const { layout, deployment, lock } = await makeScene(t)
    const locked: boolean[] = []
    await surveyHost(deployment, lock, async () => void locked.push(deployment.isLocked, existsSync(layout.lock)))
    assert.deepEqual(locked, [false, false])
  })

  it('takes the lock and checks again before it refuses, then releases the lock', async t => {
    const { layout, deployment, lock } = await makeScene(t)
    const locked: boolean[] = []
    await surveyHost(deployment, lock, async () => {
      locked.push(existsSync(layout.lock))
      if (!deployment.isLocked) throw new DeploymentError('place_taken', 'It was being moved.')
    })
    assert.deepEqual([locked, deployment.isLocked, existsSync(layout.lock)], [[false, true], false, false])
  })

  for (const [what, leave] of Object.entries(LEFT)) {
    it(`checks only with the lock if there is ${what}`, async t => {
      const { layout, deployment, lock } = await makeScene(t)
      leave(layout)
      const locked: boolean[] = []
      await surveyHost(deployment, lock, async () => void locked.push(deployment.isLocked))
      assert.deepEqual([locked, existsSync(layout.lock)], [[true], false])
    })
  }

  it('first recovers the host from a dead run; if it cannot, it refuses and keeps the lock', async t => {
    const { layout, deployment, lock } = await makeScene(t)
    writeFileSync(layout.journal, '')
    const look = surveyHost(deployment, lock, () => assert.fail('the check ran'))
    await assert.rejects(look, error => error instanceof DeploymentError && error.code === 'inconsistent')
    assert.ok(deployment.isLocked)
    lock.release()
  })

  it('keeps the lock when the check refuses, so that a recovery that failed is not repeated', async t => {
    const { deployment, lock } = await makeScene(t)
    const refused = new DeploymentError('place_taken', 'Somebody is there.')
    await assert.rejects(
      surveyHost(deployment, lock, () => Promise.reject(refused)),
      refused,
    )
    assert.ok(deployment.isLocked)
    lock.release()
  })

  it('neither waits nor checks while another run has the lock, and names the process of that run', async t => {
    const { layout, log, deployment, lock } = await makeScene(t)
    const holder = await acquireLock({ path: layout.lock, timeoutMs: 0, runUrl: null, log: () => {} })
    t.after(() => holder.release())
    await surveyHost(deployment, lock, () => assert.fail('the check ran'))
    assert.ok(!deployment.isLocked)
    assert.match(log.lines.join(), new RegExp(`in progress here: process ${process.pid} `))
  })
})
