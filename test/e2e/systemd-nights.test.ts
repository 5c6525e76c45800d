import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { runNextToManager } from '../install/services/user-manager.ts'

const SERVICE = '[Service]\nExecStart=/bin/sleep 600\n'
const UNITS = { 'app-greeter.service': SERVICE, 'app-cart.service': SERVICE, 'shop.service': SERVICE }

describe('systemd', () => {
  it('neither stops nor starts anything when the same version is deployed every night, unless it does not run', t => {
    const seen = runNextToManager(t, join(import.meta.dirname, 'harness/systemd-nights.ts'), UNITS)
    if (seen === undefined) return
    const expected = {
      changed: ['true', 'false', 'false', 'false', 'false'],
      isLogged: true,
      isUntouched: true,
      isStarted: true,
      isAnyStoppedMeanwhile: false,
      isRestartedByRedeploy: true,
    }
    assert.deepEqual(seen, { marketplace: expected, project: expected })
  })
})
