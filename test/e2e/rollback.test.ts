import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type ActionResult, type ActionRun, runAction } from '../../local/runner.ts'
import { acceptedReports, readLocalReport } from './harness/evidence.ts'
import { assertNothingStrays } from './harness/invariants.ts'
import { openStage, pluginFiles, type Stage, writeFiles } from './harness/stage.ts'

/** A host that runs greeter 2.0.0, with files of its own, and retains 1.0.0. */
async function openHost(t: TestContext, versions = ['1.0.0', '2.0.0']): Promise<Stage> {
  const stage = await openStage()
  t.after(() => stage.close())
  for (const version of versions) {
    await stage.publish(version, pluginFiles(version))
    const { exitCode, log } = await stage.deploy({ version })
    assert.equal(exitCode, 0, log)
    writeFiles(join(stage.root, 'plugins/greeter'), { '.env': 'LANGUAGE=en\n', 'data/visitors': `${version}\n` })
  }
  return stage
}

function rollBack(
  { workspace, root }: Stage,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  return runAction({
    action: 'rollback',
    workspace,
    ...run,
    inputs: { id: 'greeter', 'project-root': root, 'host-id': 'host-1', ...inputs },
  })
}

function readInstalled({ root }: Stage) {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8')).installed
}

describe('a rollback', () => {
  it('restores the newest snapshot with the present files of the host, without a hub', async t => {
    const stage = await openHost(t)
    const [before] = readInstalled(stage)
    const reports = acceptedReports(stage).length
    const result = await rollBack(stage)
    assert.equal(result.exitCode, 0, result.log)
    const { outputs } = result
    assert.deepEqual(
      [
        outputs['outcome'],
        outputs['changed'],
        outputs['version'],
        outputs['previous-version'],
        outputs['running-version'],
      ],
      ['success', 'true', '1.0.0', '2.0.0', '1.0.0'],
    )
    const place = join(stage.root, 'plugins/greeter')
    assert.match(readFileSync(join(place, 'src/main.py'), 'utf8'), /1\.0\.0/)
    assert.equal(readFileSync(join(place, 'data/visitors'), 'utf8'), '2.0.0\n')
    assert.equal(readFileSync(join(place, '.env'), 'utf8'), 'LANGUAGE=en\n')
    const [row] = readInstalled(stage)
    const [old] = before.snapshots
    for (const key of [
      'version',
      'artifact_sha256',
      'tree_digest',
      'tree_record',
      'installed_at',
      'run_url',
      'deployment_id',
    ])
      assert.equal(row[key], old[key], key)
    assert.deepEqual(
      row.snapshots.map(({ name }: { name: string }) => name),
      ['2-2.0.0'],
    )
    assert.equal(existsSync(join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0')), false)
    const report = readLocalReport(result)
    assert.equal(report.rollback_of, '2.0.0')
    assert.equal(report.reported.accepted, false)
    assert.equal(acceptedReports(stage).length, reports)
    assertNothingStrays(stage.root)
  })

  it('tells the hub of the restored version as a success', async t => {
    const stage = await openHost(t)
    const result = await rollBack(stage, { 'hub-url': stage.hub.url, 'api-key': stage.apiKey, slug: 'greeter' })
    assert.equal(result.outputs['reported'], 'true', result.log)
    const row = acceptedReports(stage).at(-1)
    assert.deepEqual([row?.version, row?.status], ['1.0.0', 'success'])
  })
})
