import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { readLocalReport } from './harness/evidence.ts'
import { openInstalled, PLUGIN_PLAN, pluginFiles, writeFiles } from './harness/stage.ts'

const PLAN = `${PLUGIN_PLAN}
  - {id: late, action: provision, plugin: greeter, depends_on: [files]}
`
/** Shell: the new version on the host `$0` copies its kept path to another name, and the old one makes it again. */
const MIGRATION = `
cd "$0/plugins/greeter" && cp -r data storage && rm -r data
mkdir "$0/.hub-deploy/snapshots/plugins/greeter/1-1.0.0/data"
exit 1
`

describe('a rollback of a version that has copied its kept path, which the old version has made again,', () => {
  it('says so, and keeps the tree with the copy', async t => {
    const stage = await openInstalled(pluginFiles('1.0.0'))
    t.after(() => stage.close())
    const { root, workspace } = stage
    writeFiles(join(root, 'plugins/greeter'), { 'data/rows': 'mine' })
    const provision = { greeter: { command: ['sh', '-c', MIGRATION, root] } }
    writeFileSync(join(workspace.path, 'host.yaml'), JSON.stringify({ version: 1, provision }))
    stage.writePlan(PLAN)
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
    const result = await stage.deploy({ 'host-config': 'host.yaml' })
    assert.equal(result.outputs['outcome'], 'rolled_back', result.log)
    assert.deepEqual(readLocalReport(result).rollback?.problems, [
      'plugins/greeter/data was removed by another process during the switch, and cannot be put back',
    ])
    const own = join(root, '.hub-deploy')
    const [aside = ''] = readdirSync(join(own, 'snapshots/set-aside'))
    assert.equal(readFileSync(join(own, 'snapshots/set-aside', aside, 'tree/storage/rows'), 'utf8'), 'mine')
    assert.match(result.log, new RegExp(`^::warning::The files that .* are now in \\S*${aside}\\.`, 'm'))
    assert.deepEqual(readdirSync(join(own, 'staging')), [])
  })
})
