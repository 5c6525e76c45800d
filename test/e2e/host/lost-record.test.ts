import assert from 'node:assert/strict'
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, pluginFiles } from '../harness/stage.ts'

function endOf({ outputs }: ActionResult): string {
  return [outputs['outcome'], outputs['error-code'], outputs['changed']].join(' ').trim()
}

describe('a host whose installed.json was damaged between two runs', () => {
  it('refuses a deployment until the file is moved away, and then requires the first one to name its version', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    const record = join(stage.root, '.hub-deploy/installed.json')
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    await stage.deploy()
    writeFileSync(record, readFileSync(record, 'utf8').slice(0, 99))
    const refused = await stage.deploy({ version: '1.0.0' })
    assert.equal(endOf(refused), 'inconsistent inconsistent false')
    assert.match(
      refused.log,
      /installed\.json is not a record .* move it away .* deploy each plugin, service and project again: name its version/,
    )
    renameSync(record, `${record}.damaged`)
    assert.equal(endOf(await stage.deploy()), 'failed downgrade_refused false')
    assert.equal(endOf(await stage.deploy({ version: '1.0.0' })), 'success  true')
    assert.equal(endOf(await stage.deploy()), 'success  false')
    assert.ok(existsSync(join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0')))
  })

  it('has the parts of a project taken over once the operator allows that', { skip: whyLeftToCi() }, async t => {
    const stage = await openProjectStage()
    t.after(() => stage.close())
    const record = join(stage.root, '.hub-deploy/installed.json')
    await stage.publish('1.0.0', projectFiles('1.0.0'))
    await stage.deploy()
    renameSync(record, `${record}.damaged`)
    assert.equal(endOf(await stage.deploy({ version: '1.0.0' })), 'failed place_taken false')
    assert.equal(endOf(await stage.deploy({ version: '1.0.0', 'allow-takeover': 'true' })), 'success  true')
    assert.equal(endOf(await stage.deploy()), 'success  false')
  })
})
