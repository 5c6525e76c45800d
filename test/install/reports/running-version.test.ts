import assert from 'node:assert/strict'
import { symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { recordInstalled } from '../../../src/install/host/installed/host-record.ts'
import { readRunningVersion } from '../../../src/install/reports/running-version.ts'
import { factsOf, prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

describe('readRunningVersion', () => {
  it('returns the recorded version only if the directory of the plugin exists', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf()], removed: [] })
    assert.equal(readRunningVersion(layout, factsOf()), null)
    writeTree(layout.root, { 'plugins/greeter/a': '' })
    assert.equal(readRunningVersion(layout, factsOf()), '2.0.0')
  })

  it('does not throw if the directory of the plugin cannot be examined', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf({ directory: 'loop' })], removed: [] })
    symlinkSync('loop', join(layout.root, 'loop'))
    assert.equal(readRunningVersion(layout, factsOf()), null)
  })
})
