import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { startDeployment } from '../../../../src/install/deployment/deployment.ts'
import { dryRunDeployment } from '../../../../src/install/deployment/dry-run/dry-run.ts'
import type { NewPart } from '../../../../src/install/steps/parts/part.ts'
import { MARKETPLACE_TRANSITIONS } from '../../../../src/marketplace/states.ts'
import { treeOf, writeTreeOf } from '../../host/trees/recorded-tree.ts'
import { contextOf, partOf, requestOf, toolsOf } from '../../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost } from '../../prepared-host.ts'

describe('dryRunDeployment', () => {
  it('names symlinks, old and new ones, in place of a size', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTreeOf(join(layout.root, 'plugins/x'), { a: '123', b: '1' }, { gone: 'a', now: 'a' })
    const part: NewPart = partOf(layout, { tree: treeOf({ a: '1234', now: '12' }, { b: 'a' }) })
    const start = { transitions: MARKETPLACE_TRANSITIONS, facts: factsOf(), sender: undefined }
    const deployment = startDeployment(requestOf(layout), toolsOf(), start)
    const { order } = await contextOf(t, deployment, { parts: [part] })
    const flow = {
      check: async () => {},
      survey: async () => {},
      fetch: async () => ({ close: () => {} }),
      prepare: async () => order,
      install: () => assert.fail('installed'),
      end: async () => {},
    }
    const { dryRun, error } = await dryRunDeployment(deployment, flow)
    assert.equal(error, undefined)
    assert.deepEqual(dryRun?.changes, [
      { how: 'changed', path: 'plugins/x/a', before: '3 bytes', after: '4 bytes' },
      { how: 'changed', path: 'plugins/x/b', before: '1 byte', after: 'symlink' },
      { how: 'changed', path: 'plugins/x/now', before: 'symlink', after: '2 bytes' },
      { how: 'removed', path: 'plugins/x/gone', before: 'symlink' },
    ])
  })
})
