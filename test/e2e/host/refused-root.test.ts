import assert from 'node:assert/strict'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { acceptedReports } from '../harness/evidence.ts'
import { acceptedProjectReports } from '../harness/project-evidence.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, planWith, pluginFiles } from '../harness/stage.ts'

function assertRefused(root: string, { exitCode, outputs, log }: ActionResult): void {
  assert.deepEqual(
    [exitCode, outputs['outcome'], outputs['state'], outputs['changed']],
    [1, 'failed', 'pending', 'false'],
  )
  const [path, id] = [outputs['report-path'] ?? '', outputs['deployment-id']]
  assert.deepEqual([basename(path), outputs['reported']], [`hub-deploy-report-${id}.json`, 'true'], log)
  assert.equal(statSync(path).mode & 0o777, 0o600)
  const { outcome, reported, deployment_id } = JSON.parse(readFileSync(path, 'utf8'))
  assert.deepEqual([outcome, reported.accepted, deployment_id], ['failed', true, id])
  assert.equal(existsSync(root), false)
  assert.doesNotMatch(log, /Could not write/)
}

describe('a first run that is refused', () => {
  it('creates no project root, and reports to the hub', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    const root = join(stage.folder, 'new')
    const refused = {
      'a plan that this host cannot carry out': planWith('action: restart, plugin: greeter'),
      'a file that is not a plan': 'steps: 1\n',
    }
    for (const plan of Object.values(refused)) {
      stage.writePlan(plan)
      assertRefused(root, await stage.deploy({ 'project-root': root }))
    }
    assert.deepEqual(
      acceptedReports(stage).map(({ status }) => status),
      ['failed', 'failed'],
    )
    stage.writePlan(planWith())
    const { exitCode, log } = await stage.deploy({ 'project-root': root })
    assert.equal(exitCode, 0, log)
    assert.match(log, /did not exist, so it was created/)
  })

  it('of a project creates no project root either', async t => {
    const stage = await openProjectStage()
    t.after(() => stage.close())
    await stage.publish('1.0.0', projectFiles('1.0.0'))
    const root = join(stage.folder, 'new')
    writeFileSync(join(stage.workspace.path, 'host-config.yaml'), 'version: 7\n')
    assertRefused(root, await stage.deploy({ 'project-root': root, 'host-config': 'host-config.yaml' }))
    assert.equal(acceptedProjectReports(stage).length, 1)
    const { exitCode, log } = await stage.deploy({ 'project-root': root })
    assert.equal(exitCode, 0, log)
  })
})
