import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { FLOWS } from '../../../src/actions/flows.ts'
import { statesBetween } from '../../../src/core/state-machine.ts'
import { startDeployment } from '../../../src/install/run/deployment.ts'
import { CHECK_TRANSITIONS } from '../../../src/marketplace/deployment.ts'
import { requestOf, toolsOf } from '../prepared-deployment.ts'
import { collectLog, factsOf, prepareTemporaryHost } from '../prepared-host.ts'

describe('the log groups', () => {
  const acting: Record<string, readonly string[]> = {
    marketplace: ['installing', 'healthchecking'],
    project: ['installing', 'healthchecking', 'notifying'],
    rollback: ['installing', 'healthchecking'],
    check: [],
  }
  for (const [flow, expected] of Object.entries(acting)) {
    it(`show their lines at once in the states that may change the host (${flow})`, async t => {
      const transitions = { ...FLOWS, check: CHECK_TRANSITIONS }[flow] ?? {}
      const opened: (readonly [title: string, shown: string | undefined])[] = []
      const log = { ...collectLog(), group: (title: string, shown?: string) => void opened.push([title, shown]) }
      const request = requestOf(await prepareTemporaryHost(t))
      const start = { transitions, facts: factsOf(), sender: undefined }
      const deployment = startDeployment<string>(request, toolsOf({ log }), start)
      for (const state of statesBetween(transitions, 'pending', 'succeeded')) await deployment.enter(state)
      assert.ok(opened.length > 1)
      const shown = opened.flatMap(([title, at]) => (at === 'at once' ? [title] : []))
      assert.deepEqual(shown, expected)
    })
  }
})
