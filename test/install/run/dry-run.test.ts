import assert from 'node:assert/strict'
import { linkSync, mkdirSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { Layout } from '../../../src/install/host/layout.ts'
import type { RunResult } from '../../../src/install/reports/result.ts'
import { startDeployment } from '../../../src/install/run/deployment.ts'
import { dryRunDeployment } from '../../../src/install/run/dry-run.ts'
import type { InstallOrder, NewPart } from '../../../src/install/steps/context.ts'
import { MARKETPLACE_TRANSITIONS } from '../../../src/marketplace/deployment.ts'
import { contextOf, deploymentOf, partOf, requestOf, toolsOf } from '../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost } from '../prepared-host.ts'
import { treeOf, writeTreeOf } from '../trees/recorded-tree.ts'

/** Does a dry run that prepares this order. */
async function dryRunOf(layout: Layout, prepare: (folder: string) => InstallOrder): Promise<RunResult> {
  const start = { transitions: MARKETPLACE_TRANSITIONS, facts: factsOf(), sender: undefined }
  return await dryRunDeployment(startDeployment(requestOf(layout), toolsOf(), start), {
    check: async () => {},
    prepare: async (_, folder) => prepare(folder),
    install: () => assert.fail('installed'),
    end: async () => {},
  })
}

describe('dryRunDeployment', () => {
  it('says "symlink" in place of a size, for old and new symlinks', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTreeOf(join(layout.root, 'plugins/x'), { a: '123', b: '1' }, { gone: 'a', now: 'a' })
    const part: NewPart = partOf(layout, { tree: treeOf({ a: '1234', now: '12' }, { b: 'a' }) })
    const { order } = await contextOf(t, deploymentOf(layout), { parts: [part] })
    const { dryRun, error } = await dryRunOf(layout, () => order)
    assert.equal(error, undefined)
    assert.deepEqual(dryRun?.changes, [
      { how: 'changed', path: 'plugins/x/a', before: '3 bytes', after: '4 bytes' },
      { how: 'changed', path: 'plugins/x/b', before: '1 byte', after: 'symlink' },
      { how: 'changed', path: 'plugins/x/now', before: 'symlink', after: '2 bytes' },
      { how: 'removed', path: 'plugins/x/gone', before: 'symlink' },
    ])
  })

  it('says "at least" if there are more files to remove than a comparison counts', async t => {
    const layout = await prepareTemporaryHost(t)
    const folder = join(layout.root, 'plugins/x')
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, '0'), '')
    // Many links are created much faster than many files.
    const addLink = (number: number): void => linkSync(join(folder, '0'), join(folder, `${number}`))
    for (let number = 1; number < 10_000; number++) addLink(number)
    const { order } = await contextOf(t, deploymentOf(layout), { parts: [partOf(layout)] })
    assert.equal((await dryRunOf(layout, () => order)).dryRun?.inWords(), 'change 10,000 files')
    addLink(10_000)
    assert.equal((await dryRunOf(layout, () => order)).dryRun?.inWords(), 'change at least 10,000 files')
  })

  it('names both folders if a system error prevents the comparison', async t => {
    const layout = await prepareTemporaryHost(t)
    const { error } = await dryRunOf(layout, folder => {
      writeFileSync(join(folder, 'missing/plugin.sig'), '')
      return assert.fail('written')
    })
    const doing = `preparing files in ${tmpdir()} and comparing them with those in ${layout.root}`
    assert.ok(error?.message.startsWith(`Failed while ${doing}: ENOENT`), error?.message)
  })
})
