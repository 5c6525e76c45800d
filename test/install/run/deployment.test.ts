import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { FLOWS } from '../../../src/actions/flows.ts'
import { statesBetween } from '../../../src/core/state-machine.ts'
import { DryRunResult, startDeployment } from '../../../src/install/run/deployment.ts'
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

describe('the result of a dry run', () => {
  it('lists all kinds of changes in one sentence', () => {
    const result = new DryRunResult()
    result.removals.push('')
    assert.equal(result.inWords(), 'remove 1 part')
    result.add('added', 'plugins/x/a', () => ({ after: '1 byte' }))
    assert.equal(result.inDetail(), 'remove 1 part and change 1 file: 1 added')
  })

  it('says "at least" if a comparison did not count all files to remove', () => {
    const result = new DryRunResult()
    for (const how of ['changed', 'removed'] as const) result.add(how, 'plugins/x/a', () => ({}))
    result.hasMore = true
    assert.equal(result.inDetail(), 'change at least 2 files: 1 changed, at least 1 removed')
    assert.equal(result.countInWords(3000, 'more file'), 'at least 3,000 more files')
  })
})
