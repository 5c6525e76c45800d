import assert from 'node:assert/strict'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { assertNothingStrays, listLive, readLocalReport } from '../harness/evidence.ts'
import { filesWith, openProjectStage, type Parts, type ProjectStage } from '../harness/project-stage.ts'
import { writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

/** A host on which these versions of a project were deployed one after the other, with the host's own data. */
async function openHost(t: TestContext, versions: Record<string, Parts>): Promise<ProjectStage> {
  const stage = await openProjectStage()
  t.after(() => stage.close())
  for (const [version, parts] of Object.entries(versions)) {
    await stage.publish(version, filesWith(version, parts))
    const { exitCode, log } = await stage.deploy({ version })
    assert.equal(exitCode, 0, log)
    if (version === '1.0.0') writeFiles(stage.root, { 'plugins/cart/data/orders': '17\n', 'plugins/cart.env': 'A=1\n' })
  }
  return stage
}

function rollBack({ workspace, root }: ProjectStage, inputs: Record<string, string> = {}): Promise<ActionResult> {
  const given = { 'project-id': 'shop', 'project-root': root, 'host-id': 'host-1', ...inputs }
  return runAction({ action: 'rollback', workspace, inputs: given })
}

function versionsOf({ root }: ProjectStage): Record<string, string> {
  const { installed } = JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8'))
  return Object.fromEntries(installed.map((row: Record<string, string>) => [row['id'], row['project_version']]))
}

const WITHOUT_MAILER: Parts = { included: ['cart', 'till'] }

describe('a rollback of a project', () => {
  it('restores all parts as one, with the current files of the host', async t => {
    const stage = await openHost(t, { '1.0.0': {} })
    const old = listLive(stage.root)
    await stage.publish('2.0.0', filesWith('2.0.0', {}))
    await stage.deploy({ version: '2.0.0' })
    const result = await rollBack(stage)
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual(
      [result.outputs['version'], result.outputs['previous-version'], result.outputs['running-version']],
      ['1.0.0', '2.0.0', '1.0.0'],
    )
    assert.equal(result.outputs['project-id'], 'shop')
    assert.deepEqual(JSON.parse(result.outputs['plugins'] ?? ''), [
      { id: 'cart', version: '1.0.0' },
      { id: 'till', version: '7.0.0' },
    ])
    assert.deepEqual(listLive(stage.root), old)
    assert.deepEqual(versionsOf(stage), { mailer: '1.0.0', cart: '1.0.0', till: '1.0.0' })
    const report = readLocalReport(result)
    assert.deepEqual([report.rollback_of, report.reported.accepted], ['2.0.0', false])
    assertNothingStrays(stage.root)
  })

  it('removes parts that the old version did not have, and restores those that the new one lacks', {
    skip: ONLY_IN_CI,
  }, async t => {
    const stage = await openHost(t, { '1.0.0': WITHOUT_MAILER, '2.0.0': {}, '3.0.0': { included: ['cart', 'mailer'] } })
    const three = listLive(stage.root)
    const first = await rollBack(stage, { 'to-version': '1.0.0' })
    assert.equal(first.exitCode, 0, first.log)
    assert.deepEqual(versionsOf(stage), { cart: '1.0.0', till: '1.0.0' })
    assert.equal(existsSync(join(stage.root, 'extensions/mailer')), false)
    const second = await rollBack(stage, { 'to-version': '3.0.0' })
    assert.equal(second.exitCode, 0, second.log)
    assert.deepEqual(listLive(stage.root), three)
  })

  it('lists in a dry run the parts that it would remove, even if no file would change', async t => {
    const stage = await openHost(t, { '1.0.0': WITHOUT_MAILER })
    await stage.publish('2.0.0', filesWith('1.0.0', {}))
    assert.equal((await stage.deploy({ version: '2.0.0' })).exitCode, 0)
    const { log, summary } = await rollBack(stage, { 'dry-run': 'true' })
    assert.match(log, /: a real run would remove 1 part /)
    assert.match(log, /^extensions\/mailer would be removed and kept as a snapshot\.$/m)
    assert.match(summary, /^### 🔎 Dry run: shop 2\.0\.0 → 1\.0\.0 on host-1 would remove 1 part\n/)
    assert.match(summary, /^extensions\/mailer would be removed and kept as a snapshot\.$/m)
    const { exitCode } = await rollBack(stage)
    assert.deepEqual([exitCode, existsSync(join(stage.root, 'extensions/mailer'))], [0, false])
  })

  it('does not restore the version that it has replaced when it is repeated', { skip: ONLY_IN_CI }, async t => {
    const stage = await openHost(t, { '1.0.0': {}, '2.0.0': {} })
    await rollBack(stage)
    const one = listLive(stage.root)
    const again = await rollBack(stage)
    assert.deepEqual([again.outputs['outcome'], again.outputs['error-code']], ['failed', 'no_snapshot'], again.log)
    assert.match(
      again.log,
      /installed before the current one: nothing was changed\. This host knows 2\.0\.0, 1\.0\.0\./,
    )
    assert.deepEqual(listLive(stage.root), one)
  })

  it('does not offer the version that is installed', { skip: ONLY_IN_CI }, async t => {
    const { outputs, log } = await rollBack(await openHost(t, { '1.0.0': {} }))
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'no_snapshot'], log)
    assert.match(log, /This host knows only 1\.0\.0, which is installed: deploy another version from the hub\./)
  })

  it('does not move a part whose files are the same in both versions', { skip: ONLY_IN_CI }, async t => {
    const same = { more: { 'plugins/till/src/main.py': 'print("till")\n' } }
    const stage = await openHost(t, { '1.0.0': same, '2.0.0': same, '3.0.0': same })
    const result = await rollBack(stage, { 'to-version': '1.0.0' })
    assert.equal(result.exitCode, 0, result.log)
    assert.match(result.log, /plugins\/till is already 7\.0\.0/)
    assert.deepEqual(versionsOf(stage), { mailer: '1.0.0', cart: '1.0.0', till: '1.0.0' })
    const again = await rollBack(stage, { 'to-version': '1.0.0' })
    assert.deepEqual([again.outputs['outcome'], again.outputs['changed']], ['success', 'false'], again.log)
  })

  it('names the missing snapshots, and touches nothing', { skip: ONLY_IN_CI }, async t => {
    const stage = await openHost(t, { '1.0.0': {}, '2.0.0': {} })
    const before = listLive(stage.root)
    rmSync(join(stage.root, '.hub-deploy/snapshots/plugins/till/1-7.0.0'), { recursive: true })
    for (const inputs of [{}, { 'to-version': '1.0.0' }]) {
      const { outputs, log } = await rollBack(stage, inputs as Record<string, string>)
      assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'no_snapshot'], log)
      assert.match(log, /1\.0\.0 needs plugins\/till 7\.0\.0/)
    }
    assert.deepEqual(listLive(stage.root), before)
  })

  it('refuses a snapshot that was changed, before it touches any part', async t => {
    const stage = await openHost(t, { '1.0.0': {}, '2.0.0': {} })
    const before = listLive(stage.root)
    writeFileSync(join(stage.root, '.hub-deploy/snapshots/extensions/mailer/1-1.0.0/run.sh'), 'echo evil\n')
    const { outputs, log } = await rollBack(stage)
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'snapshot_modified'], log)
    assert.deepEqual(listLive(stage.root), before)
  })

  it('does not restore a single part of the project, and reports nothing', { skip: ONLY_IN_CI }, async t => {
    const stage = await openHost(t, { '1.0.0': {}, '2.0.0': {} })
    const single = await rollBack(stage, { 'project-id': '', id: 'cart' })
    assert.equal(single.outputs['error-code'], 'place_taken', single.log)
    const hub = { 'hub-url': stage.hub.url, 'api-key': 'a-key-of-someone', slug: 'shop' }
    assert.equal((await rollBack(stage, hub)).outputs['error-code'], 'invalid_input')
  })
})
