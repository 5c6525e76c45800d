import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import type { InstalledPart } from '../../../../src/install/steps/parts/part.ts'
import { switchParts } from '../../../../src/install/steps/switch/switch-parts.ts'
import { contextOf, deploymentOf } from '../../prepared-deployment.ts'
import { prepareTemporaryHost, rowOf } from '../../prepared-host.ts'
import { writeTree } from '../../temporary-directory.ts'

describe('the removal of a part', () => {
  for (const [version, said] of [
    ['1.0.0', '1.0.0 removed'],
    [null, 'removed'],
  ] as const) {
    it(`says "${said}" of a part whose recorded version is ${version}`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeTree(layout.root, { 'plugins/x/a': '' })
      const installed = rowOf({ id: 'x', version })
      const part: InstalledPart = { shelf: 'plugins', id: 'x', directory: 'plugins', installed }
      const context = await contextOf(t, deploymentOf(layout), { removals: [part] })
      const results = await switchParts(context, { removed: [part], prepared: [] })
      assert.deepEqual(results.get(part), { status: 'done', did: said, story: `plugins/x ${said}` })
    })
  }
})
