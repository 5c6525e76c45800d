import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { startDeployment } from '../../../../src/install/deployment/deployment.ts'
import { HostLock } from '../../../../src/install/deployment/run/host-lock.ts'
import { describeOther } from '../../../../src/install/host/locks/lock.ts'
import { type DeployState, MARKETPLACE_TRANSITIONS } from '../../../../src/marketplace/states.ts'
import { requestOf, toolsOf } from '../../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost } from '../../prepared-host.ts'

describe('HostLock', () => {
  const unknown = { slug: null, id: null, version: null, requested_version: null }
  const named = [
    ['the slug and the version', factsOf(), / since \S+ to deploy greeter 2\.0\.0(, |$)/],
    ['the id if the slug is not known', factsOf({ ...unknown, id: 'greeter' }), / since \S+ to deploy greeter(, |$)/],
    ['nothing if nothing is known', factsOf(unknown), / since [^ ,]+(, http\S+)?$/],
  ] as const
  for (const [what, facts, holder] of named)
    it(`shows other runs ${what}`, async t => {
      const layout = await prepareTemporaryHost(t)
      const start = { transitions: MARKETPLACE_TRANSITIONS, facts, sender: undefined }
      const lock = new HostLock(startDeployment<DeployState>(requestOf(layout), toolsOf({}), start))
      await lock.take(1000)
      assert.match(describeOther(layout.lock), holder)
      lock.release()
    })
})
