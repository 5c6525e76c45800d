import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { openInstalled, PLUGIN_PLAN, pluginFiles, writeFiles } from '../harness/stage.ts'

const PLAN = `${PLUGIN_PLAN}
  - {id: late, action: provision, plugin: greeter, depends_on: [files]}
`
const LOST = [
  'plugins/greeter/data was removed or replaced by another process after the deployment began, and cannot be put back',
]

/**
 * Updates a plugin that has data. A step then runs the shell script `migration` in the new version's directory, with
 * the project root as `$0`, and fails.
 */
async function failAfter(t: TestContext, migration: string): Promise<{ result: ActionResult; root: string }> {
  const stage = await openInstalled(pluginFiles('1.0.0'))
  t.after(() => stage.close())
  const { root, workspace } = stage
  writeFiles(join(root, 'plugins/greeter'), { 'data/rows': 'mine' })
  const script = `cd "$0/plugins/greeter"\n${migration}\nexit 1`
  const provision = { greeter: { command: ['sh', '-c', script, root] } }
  writeFileSync(join(workspace.path, 'host.yaml'), JSON.stringify({ version: 1, provision }))
  stage.writePlan(PLAN)
  await stage.publish('2.0.0', pluginFiles('2.0.0'))
  const result = await stage.deploy({ 'host-config': 'host.yaml' })
  assert.equal(result.outputs['outcome'], 'rolled_back', result.log)
  assert.deepEqual(readdirSync(join(root, '.hub-deploy/staging')), [])
  return { result, root }
}

/** The only file or directory that was set aside. */
function asideIn(root: string): string {
  const folder = join(root, '.hub-deploy/snapshots/set-aside')
  const [aside = '', ...others] = readdirSync(folder)
  assert.deepEqual(others, [])
  return join(folder, aside)
}

describe('a rollback of a version that has copied and removed its kept path', () => {
  for (const [which, folder, skip] of [
    ['the old version', '$0/.hub-deploy/snapshots/plugins/greeter/1-1.0.0/data', false],
    ['the new version', 'data', whyLeftToCi()],
  ] as const)
    it(`reports the loss if ${which} has re-created the path, and keeps the tree with the copy`, { skip }, async t => {
      const { result, root } = await failAfter(t, `cp -r data storage && rm -r data && mkdir "${folder}"`)
      assert.deepEqual(readLocalReport(result).rollback?.problems, LOST)
      const aside = asideIn(root)
      assert.equal(readFileSync(join(aside, 'tree/storage/rows'), 'utf8'), 'mine')
      assert.match(result.log, new RegExp(`^::warning::The files that .* are now in ${aside}\\.`, 'm'))
    })
})

describe('a rollback of a version that has renamed its kept path and created another one', () => {
  it('restores the renamed path, and sets the other one aside', { skip: whyLeftToCi() }, async t => {
    const { result, root } = await failAfter(t, 'mv data data.old && mkdir data && echo new > data/rows')
    assert.deepEqual(readLocalReport(result).rollback?.problems, [])
    assert.equal(readFileSync(join(root, 'plugins/greeter/data/rows'), 'utf8'), 'mine')
    assert.equal(readFileSync(join(asideIn(root), 'rows'), 'utf8'), 'new\n')
  })
})
