import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { zipFolder } from '../../../hub/archive/make-zip.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { listHost } from '../harness/evidence.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage } from '../harness/project-stage.ts'
import { SIGNING_SECRET, writeFiles } from '../harness/stage.ts'

/** The ZIP of a service, with an empty directory in it. */
function zipOf(stage: ProjectStage, name: string): Buffer {
  const source = join(stage.folder, name)
  writeFiles(source, { 'run.sh': `echo ${name}\n` })
  mkdirSync(join(source, 'config'))
  return zipFolder(source).bytes
}

function planFor(slug: string): string {
  return `format_version: "1"
project_id: ${PROJECT_ID}
version: "1"
steps:
  - {id: cart, action: install_plugin, plugin: cart}
  - {id: mail, action: install_extension, extension: mail, source: {marketplace_slug: ${slug}, marketplace_kind: service}}
`
}

describe('a service that a marketplace supplies for a project, without snapshots', () => {
  let stage: ProjectStage
  let old: Buffer
  before(async () => {
    stage = await openProjectStage()
    old = zipOf(stage, 'old')
  })
  after(async () => await stage.close())

  async function publish(slug: string, version: string, bytes: Buffer): Promise<void> {
    const publication = { kind: 'service' as const, slug, version, signingSecret: SIGNING_SECRET, replace: true }
    await publishArchive(stage.store, bytes, publication)
  }

  async function publishProject(version: string, slug: string): Promise<void> {
    await stage.publish(version, {
      'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n',
      'extensions/mail/config/app.template': 'A=1\n',
      'deployment/install.yaml': planFor(slug),
    })
  }

  async function deploy(): Promise<ActionResult> {
    return stage.deploy({
      'sources-hub-url': stage.hub.url,
      'sources-api-key': stage.apiKey,
      'sources-signing-secret': SIGNING_SECRET,
    })
  }

  const at = (path: string): string => readFileSync(join(stage.root, path), 'utf8')

  it('replaces its stub, even if the service has an empty directory', async () => {
    await publish('mail', '1.0.0', old)
    await publishProject('1.0.0', 'mail')
    const result = await deploy()
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual([at('extensions/mail/run.sh'), at('extensions/mail/config/app.template')], ['echo old\n', 'A=1\n'])
  })

  it('never returns under a newer version once it was replaced', async () => {
    await publish('mail', '2.0.0', zipOf(stage, 'fixed'))
    assert.equal((await deploy()).exitCode, 0)
    await publish('mail', '3.0.0', old)
    const before = listHost(stage.root)
    const { exitCode, outputs, log } = await deploy()
    assert.deepEqual([exitCode, outputs['error-code'], outputs['changed']], [1, 'downgrade_refused', 'false'], log)
    assert.deepEqual(listHost(stage.root), before)
    assert.deepEqual(readdirSync(join(stage.root, '.hub-deploy/snapshots/extensions/mail')), [])
    assert.equal(at('extensions/mail/run.sh'), 'echo fixed\n')
  })

  it('is replaced by another service that the next version of the project names, whatever its version', async () => {
    await publish('mail-lite', '0.5.0', zipOf(stage, 'lite'))
    await publishProject('2.0.0', 'mail-lite')
    const { exitCode, log } = await deploy()
    assert.equal(exitCode, 0, log)
    assert.equal(at('extensions/mail/run.sh'), 'echo lite\n')
  })
})
