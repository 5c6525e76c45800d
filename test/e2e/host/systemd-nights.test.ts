import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { runNextToManager } from '../../install/services/user-manager.ts'

const note = (event: string): string => `/bin/sh -c 'echo "${event} %n" >> %t/events'`
const SERVICE = `[Service]
ExecStartPre=${note('Starting')}
ExecStart=/bin/sleep 600
ExecStop=${note('Stopping')}
`
const UNITS = { 'app-greeter.service': SERVICE, 'app-cart.service': SERVICE, 'shop.service': SERVICE }

describe('systemd', () => {
  it('neither stops nor starts anything when the same version is deployed every night, unless a service is not running', t => {
    const seen = runNextToManager(t, join(import.meta.dirname, '../harness/systemd-nights.ts'), UNITS)
    if (seen === undefined) return
    const [greeter, cart, shop] = Object.keys(UNITS)
    const common = { changed: ['true', 'false', 'false', 'false', 'false'], isSameRun: true, whileUnchanged: [] }
    const restartOf = (unit: string | undefined): string[] => [`Stopping ${unit}`, `Starting ${unit}`]
    assert.deepEqual(seen, {
      marketplace: { ...common, whenStopped: [`Starting ${greeter}`], onRedeploy: restartOf(greeter) },
      project: { ...common, whenStopped: [`Starting ${cart}`], onRedeploy: [...restartOf(cart), ...restartOf(shop)] },
    })
  })
})
