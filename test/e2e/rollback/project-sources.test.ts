import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { zipFolder } from '../../../hub/archive/make-zip.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { listLive } from '../harness/evidence.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage } from '../harness/project-stage.ts'
import { SIGNING_SECRET, writeFiles } from '../harness/stage.ts'

const PLAN = `format_version: "1"
project_id: ${PROJECT_ID}
version: "1"
steps:
  - {id: cart, action: install_plugin, plugin: cart}
  - {id: pay, action: install_plugin, plugin: pay, snapshot: true, source: {marketplace_slug: payments}}
`

describe('a rollback of a project whose marketplace served new parts for the same version', () => {
  let stage: ProjectStage
  const live: Record<string, unknown> = {}

  before(async () => {
    stage = await openProjectStage()
    await stage.publish('1.0.0', {
      'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n',
      'deployment/install.yaml': PLAN,
    })
    for (const version of ['3.0.0', '3.1.0', '3.2.0']) {
      await publish(version)
      const { exitCode, log } = await deploy()
      assert.equal(exitCode, 0, log)
      live[version] = listLive(stage.root)
    }
  })
  after(async () => await stage.close())

  async function publish(version: string): Promise<void> {
    const source = join(stage.folder, `payments-${version}`)
    writeFiles(source, { 'plugin.yaml': `name: payments\nversion: "${version}"\n`, 'main.py': `print("${version}")\n` })
    const publication = { kind: 'plugin' as const, slug: 'payments', version, replace: false }
    await publishArchive(stage.store, zipFolder(source).bytes, { ...publication, signingSecret: SIGNING_SECRET })
  }

  async function deploy(): Promise<ActionResult> {
    return await stage.deploy({
      'sources-hub-url': stage.hub.url,
      'sources-api-key': stage.apiKey,
      'sources-signing-secret': SIGNING_SECRET,
    })
  }

  async function rollBack(inputs: Record<string, string> = {}): Promise<ActionResult> {
    const { workspace, root } = stage
    const given = { 'project-id': PROJECT_ID, 'project-root': root, 'host-id': 'host-1', ...inputs }
    return await runAction({ action: 'rollback', workspace, inputs: given })
  }

  async function assertRestores(version: string, inputs: Record<string, string>): Promise<void> {
    const result = await rollBack(inputs)
    const { outputs, log } = result
    assert.deepEqual([outputs['outcome'], outputs['changed'], outputs['version']], ['success', 'true', '1.0.0'], log)
    assert.match(readFileSync(join(stage.root, 'plugins/pay/plugin.yaml'), 'utf8'), new RegExp(version))
    assert.deepEqual(listLive(stage.root), live[version])
    assert.ok(JSON.parse(outputs['plugins'] ?? '').some((plugin: { version: string }) => plugin.version === version))
    for (const text of [log, result.summary]) assert.ok(text.includes(`1.0.0 now has cart 1.0.0, pay ${version}`), text)
  }

  it('restores the parts as they were before the last change, and the next night does not repeat that change', async () => {
    await assertRestores('3.1.0', {})
    const { outputs, log } = await deploy()
    assert.deepEqual([outputs['error-code'], outputs['changed']], ['downgrade_refused', 'false'], log)
  })

  it('accepts a plan that names a source, although a rollback has no manifest that repeats it', async () => {
    writeFileSync(join(stage.workspace.path, 'install.yaml'), PLAN)
    const given = { 'install-plan': 'install.yaml', 'to-version': '1.0.0', 'dry-run': 'true' }
    const { outputs, log } = await rollBack(given)
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['success', ''], log)
  })

  it('restores earlier parts of the named version, as long as there are any', async () => {
    await assertRestores('3.0.0', { 'to-version': '1.0.0' })
    const { outputs, log } = await rollBack({ 'to-version': '1.0.0' })
    assert.deepEqual([outputs['outcome'], outputs['changed']], ['success', 'false'], log)
    assert.equal((await rollBack()).outputs['error-code'], 'no_snapshot')
  })
})
